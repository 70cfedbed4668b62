"""A QMP client: one socket, one command at a time, every answer bounded and within a deadline.

QEMU's side of the socket may have been taken over by the guest, so what it says is data: lines are
bounded, shapes are checked, and nothing it sends is ever executed or printed raw.
"""

from __future__ import annotations

import array
import json
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.codes import Code
from reconciler.errors import BoxError

MAX_LINE_BYTES = 1 << 20
"""Longest answer taken; the longest real one (`ringbuf-read`) is some 100 KiB."""

MAX_EVENTS = 64
"""Unread events kept; a VMM that floods events loses its oldest."""


class QmpError(BoxError):
    """QEMU refused a command, left, or said something that is not QMP."""

    code = Code.VM_FAILED


class Qmp:
    """A QMP session on a connected Unix stream socket. The caller keeps owning the socket."""

    def __init__(self, sock: socket.socket, *, timeout_seconds: float) -> None:
        """Wait for the greeting and negotiate.

        A socket bound before QEMU starts accepts the connection early; the greeting comes when
        QEMU's main loop runs, so `timeout_seconds` covers its start.
        """
        self._sock = sock
        self._buffer = bytearray()
        self._events: list[dict[str, Any]] = []
        deadline = time.monotonic() + timeout_seconds
        greeting = self._message(deadline)
        if "QMP" not in greeting:
            raise QmpError("The VMM's control socket did not greet as QMP.")
        self.execute("qmp_capabilities", timeout_seconds=timeout_seconds)

    def execute(
        self,
        command: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        fds: Sequence[int] = (),
        timeout_seconds: float = 10.0,
    ) -> Any:  # noqa: ANN401 - QMP's return values have a type per command
        """Run one command and return its `return` value.

        `fds` travel with the command as SCM_RIGHTS (for `getfd` and `add-fd`); the caller still
        owns its copies. Raises QmpError when QEMU answers with an error, closes, or is late.
        """
        deadline = time.monotonic() + timeout_seconds
        request: dict[str, Any] = {"execute": command}
        if arguments is not None:
            request["arguments"] = dict(arguments)
        self._send(json.dumps(request).encode() + b"\n", fds, deadline)
        while True:
            message = self._message(deadline)
            if "event" in message:
                self._keep_event(message)
            elif "error" in message:
                raise QmpError(f"QEMU refused {command!r}.", details=_printable(message["error"]))
            elif "return" in message:
                return message["return"]
            else:
                raise QmpError("QEMU answered with something that is not QMP.")

    def wait_event(self, name: str, *, timeout_seconds: float) -> dict[str, Any]:
        """Return the `data` of the next event called `name`; others before it are dropped."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            while self._events:
                event = self._events.pop(0)
                if event.get("event") == name:
                    data = event.get("data", {})
                    return data if isinstance(data, dict) else {}
            message = self._message(deadline)
            if "event" in message:
                self._keep_event(message)

    def _keep_event(self, message: dict[str, Any]) -> None:
        self._events.append(message)
        del self._events[:-MAX_EVENTS]

    def _send(self, data: bytes, fds: Sequence[int], deadline: float) -> None:
        self._sock.settimeout(_left(deadline))
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            sent = self._sock.sendmsg([data], ancillary)
            if sent < len(data):
                self._sock.sendall(data[sent:])
        except OSError as error:
            raise QmpError("The VMM's control socket is gone.", details=str(error)) from error

    def _message(self, deadline: float) -> dict[str, Any]:
        # A peer that never stops talking is late too.
        if time.monotonic() >= deadline:
            raise QmpError("The VMM did not answer in time.")
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > MAX_LINE_BYTES:
                raise QmpError("The VMM sent an answer that is too long.")
            self._sock.settimeout(_left(deadline))
            try:
                chunk = self._sock.recv(65536)
            except TimeoutError as error:
                raise QmpError("The VMM did not answer in time.") from error
            except OSError as error:
                raise QmpError("The VMM's control socket is gone.", details=str(error)) from error
            if not chunk:
                raise QmpError("The VMM closed its control socket.")
            self._buffer += chunk
            if time.monotonic() >= deadline:
                raise QmpError("The VMM did not answer in time.")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise QmpError("The VMM sent something that is not JSON.") from error
        if not isinstance(message, dict):
            raise QmpError("QEMU answered with something that is not QMP.")
        return message


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


def _printable(value: object) -> str:
    """JSON text of a foreign value: ASCII, so that no escape sequence reaches a terminal."""
    return json.dumps(value)[:2000]
