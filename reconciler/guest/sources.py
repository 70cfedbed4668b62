"""Where a command's input comes from: an open file, read without ever waiting for its bytes."""

from __future__ import annotations

import os
import stat


class Source:
    """Reads a file descriptor, which stays the caller's; `fd` is for poll.

    Poll may call a pipe readable and another process that shares it take the bytes first. So a
    pipe is opened anew, with an O_NONBLOCK of its own, and read there; it is still the first one
    that is polled, because a FIFO opened after its last writer has gone never shows a hang-up.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._reading = fd
        try:
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                self._reading = os.open(f"/proc/self/fd/{fd}", flags)
        except OSError:
            pass  # closed, or of another user: read as it is

    def read(self, most: int) -> bytes | None:
        """Return up to `most` bytes, b"" at the end, None when there are none now."""
        try:
            return os.read(self._reading, most)
        except BlockingIOError:
            return None
        except OSError:
            return b""  # a closed descriptor, a terminal that is not ours: no input

    def close(self) -> None:
        """Give back what was opened here."""
        if self._reading != self.fd:
            os.close(self._reading)
            self._reading = self.fd
