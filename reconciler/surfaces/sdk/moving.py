"""The thread that moves a running command's bytes."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from typing import TYPE_CHECKING

from reconciler.guest import channel
from reconciler.guest.capture import Capture
from reconciler.surfaces.sdk import carrying

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.engine import command_log
    from reconciler.guest.protocol import Exec, Exit
    from reconciler.surfaces.sdk.process import Stream
    from reconciler.surfaces.sdk.result import Result

_PIECE_BYTES = 1 << 16
# A signal that comes between Python's look for one and poll(2) ends no poll: it is seen after it.
_LONGEST_WAIT_MS = 1000


class Moving(threading.Thread):
    """Moves one command's bytes through two pipes, so that who reads them may take its time."""

    def __init__(
        self,
        sock: socket.socket,
        session: channel.Session,
        noted: contextlib.AbstractContextManager[command_log.Entry],
        request: Exec,
        stdin: int | None,
    ) -> None:
        super().__init__(name="box-stream", daemon=True)
        self._session: channel.Session | None = session
        self._sock = sock
        self._noted = noted
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
        """Carry the command out; the pipes end with it."""
        stdout, stderr = self._writing
        session = self._session
        assert session is not None
        try:
            with self._noted as entry:
                end = session.carry_out(
                    self._request, stdin=self._stdin, stdout=stdout, stderr=stderr
                )
                entry.ended(end)
            self._end = end
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
            for fd, _ in poller.poll(_LONGEST_WAIT_MS):
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
