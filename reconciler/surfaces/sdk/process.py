"""A running command, whose output is read as it comes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Literal

from reconciler.errors import Refused
from reconciler.guest import channel
from reconciler.guest.capture import Capture
from reconciler.surfaces.sdk import carrying, given

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from reconciler.engine.contact import Contact
    from reconciler.guest.protocol import Exec, Exit
    from reconciler.surfaces.sdk.result import Result

_PIECE_BYTES = 1 << 16
_LAST_SIGNAL = 64

Stream = Literal["stdout", "stderr"]


class Process:
    """A command in a sandbox, to be used in a `with` block, which starts it.

    Iterating gives pairs of "stdout" or "stderr" and some bytes, never none, as they come: each
    stream in its order. While nobody iterates, the command can write what the way holds, about half
    a MiB of each stream, and then waits. The end of the block ends the command, with all that it
    started, if that has not ended by itself; so does an exception in it.

    One thread iterates; `send_signal` may be called from any.
    """

    def __init__(
        self,
        vm: Callable[[], Contact],
        command: given.Command,
        stdin: bytes | given.Open | None,
    ) -> None:
        self._vm = vm
        self._command = command
        self._stdin = stdin
        self._stack = contextlib.ExitStack()
        self._moving: _Moving | None = None
        self._result: Result | None = None

    def __enter__(self) -> Process:
        """Start it. Raises NotRunning, Busy, GuestFailed."""
        if self._moving is not None:
            raise Refused("A process is started once.", hint="ask for another one")
        vm = self._vm()
        with contextlib.ExitStack() as stack:
            stdin = stack.enter_context(given.descriptor(self._stdin))
            sock = stack.enter_context(channel.claim_port(vm.directory))
            session = stack.enter_context(channel.Session(sock, vm.token))
            self._moving = _Moving(sock, session, self._command.request(vm), stdin)
            stack.callback(self._moving.close)
            self._moving.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it if it runs; nothing of it is left here."""
        self._stack.close()

    def __iter__(self) -> Iterator[tuple[Stream, bytes]]:
        """Give its output until that ends. Raises GuestFailed when the guest goes away."""
        moving = self._running()
        yield from moving.pieces()
        self._result = moving.result()

    def wait(self) -> Result:
        """Drop what output is left, and return how it ended."""
        if self._result is None:
            for _ in self:
                pass
        return self.result

    @property
    def result(self) -> Result:
        """How it ended, once its output was read to its end: without that, but with its totals."""
        if self._result is None:
            raise Refused("The command has not ended.", hint="read all its output, or wait()")
        return self._result

    def send_signal(self, signo: int | str) -> None:
        """Send a signal ("TERM", "SIGTERM", 15) to its process group; none once it has ended."""
        self._running().signal(_number(signo))

    def _running(self) -> _Moving:
        if self._moving is None:
            raise Refused("The command was not started.", hint="with box.stream([...]) as process:")
        return self._moving


class _Moving(threading.Thread):
    """Moves one command's bytes through two pipes, so that who reads them may take its time."""

    def __init__(
        self, sock: socket.socket, session: channel.Session, request: Exec, stdin: int | None
    ) -> None:
        super().__init__(name="box-stream", daemon=True)
        self._session: channel.Session | None = session
        self._sock = sock
        self._request = request
        self._stdin = stdin
        self._totals: dict[Stream, Capture] = {
            "stdout": carrying.kept(0),
            "stderr": carrying.kept(0),
        }
        self._end: Exit | None = None
        self._error: BaseException | None = None
        self._result: Result | None = None
        self._began = time.monotonic()
        self._duration_ms = 0
        self._lock = threading.Lock()
        self._reading: dict[int, Stream] = {}
        self._writing: list[int] = []
        for name in self._totals:
            reading, writing = os.pipe2(os.O_CLOEXEC)
            self._reading[reading] = name
            self._writing.append(writing)

    def run(self) -> None:
        stdout, stderr = self._writing
        session = self._session
        assert session is not None
        try:
            self._end = session.carry_out(
                self._request, stdin=self._stdin, stdout=stdout, stderr=stderr
            )
            self._duration_ms = carrying.since(self._began)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that reads
            self._error = error
        finally:
            os.close(stdout)
            os.close(stderr)

    def pieces(self) -> Iterator[tuple[Stream, bytes]]:
        """Yield what comes out of both pipes until both have ended."""
        poller = select.poll()
        for fd in self._reading:
            poller.register(fd, select.POLLIN)
        while self._reading:
            for fd, _ in poller.poll():
                name = self._reading[fd]
                data = os.read(fd, _PIECE_BYTES)
                self._totals[name](data)
                if data:
                    yield name, data
                else:
                    poller.unregister(fd)
                    del self._reading[fd]
                    os.close(fd)

    def result(self) -> Result:
        """How the command ended; to be called when there are no more pieces."""
        self.join()
        if self._error is not None:
            raise self._error
        assert self._end is not None
        if self._result is None:
            done = carrying.result(self._end, self._duration_ms, *self._totals.values())
            # What was read as it came is not missing.
            self._result = done._replace(truncated=self._end.truncated)
        return self._result

    def signal(self, signo: int) -> None:
        """Send a signal, if there still is a session to send it in."""
        with self._lock:
            if self._session is not None:
                self._session.signal(signo)

    def close(self) -> None:
        """End the command by ending its session; wait for the thread and close the pipes."""
        if self.ident is None:
            for fd in self._writing:
                os.close(fd)
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        # Not closed before it has ended: what it writes must not meet a pipe without a reader,
        # which is a signal that the caller may not ignore.
        for _ in self.pieces():
            pass
        if self.ident is not None:
            self.join()
        with self._lock:
            # Its descriptors are closed next, and their numbers may soon be somebody else's.
            self._session = None


def _number(signo: int | str) -> int:
    if isinstance(signo, str):
        name = signo.upper()
        try:
            signo = signal.Signals[name if name.startswith("SIG") else f"SIG{name}"]
        except KeyError as error:
            raise Refused(f"There is no signal {signo!a}.") from error
    if not 1 <= signo <= _LAST_SIGNAL:
        raise Refused(f"There is no signal {signo}.")
    return int(signo)
