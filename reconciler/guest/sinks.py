"""Where a command's output goes: an open file, or a function, never losing or mangling a byte."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

# What a blocking pipe takes without blocking once poll calls it writable (pipe(7), PIPE_BUF).
_PIPE_BUF = 4096


class Sink:
    """Takes all the bytes it is given and passes them on as fast as the other side reads.

    Target is a file descriptor, which stays the caller's, or a function, called with each piece.
    Writing raises the OSError of the target: BrokenPipeError when its reader is gone.
    """

    def __init__(self, target: int | Callable[[bytes], object]) -> None:
        self._call = target if callable(target) else None
        self.fd = -1 if callable(target) else target
        self._own = False
        self._most = 1 << 20
        self._pending = bytearray()
        if not callable(target):
            self._never_block(target)

    def _never_block(self, fd: int) -> None:
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return
        # O_NONBLOCK on the descriptor itself would hold for every process that shares it. The same
        # pipe or terminal opened anew has a flag of its own; a socket cannot be opened.
        try:
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            self.fd = os.open(f"/proc/self/fd/{fd}", flags)
            self._own = True
        except OSError:
            self._most = _PIPE_BUF

    @property
    def pending(self) -> int:
        """How many bytes wait for the target to take them."""
        return len(self._pending)

    def put(self, data: bytes) -> None:
        """Pass data on, now or as later calls of flush() can."""
        if self._call is not None:
            self._call(data)
            return
        self._pending += data

    def flush(self) -> None:
        """Write what the target takes at once; to be called when poll says that it is writable."""
        with memoryview(self._pending) as view, view[: self._most] as piece:
            try:
                done = os.write(self.fd, piece)
            except BlockingIOError:
                return
        del self._pending[:done]

    def close(self) -> None:
        """Give back what the sink opened itself."""
        if self._own:
            os.close(self.fd)
            self._own = False
