"""Box in a terminal of its own, as a person has it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

WAIT_SECONDS = 30.0


def _take_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@dataclass
class Terminal:
    """The person's side of the terminal, and the program that runs in it."""

    ours: int
    theirs: int
    process: subprocess.Popen[bytes]
    before: list[object]
    shown: bytes = b""
    _read: int = field(default=0)

    def type(self, text: bytes) -> None:
        """Press these keys."""
        os.write(self.ours, text)

    def resize(self, rows: int, columns: int) -> None:
        """Make the window larger or smaller."""
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("<HHHH", rows, columns, 0, 0))

    def until(self, text: bytes, seconds: float = WAIT_SECONDS) -> bytes:
        """Read until `text` has come since the last call; return what came up to it."""
        deadline = time.monotonic() + seconds
        while (at := self.shown.find(text, self._read)) < 0:
            left = deadline - time.monotonic()
            assert left > 0, f"no {text!r} in {self.shown[self._read :]!r}"
            if select.select([self.ours], [], [], left)[0]:
                self.shown += os.read(self.ours, 65536)
        piece = self.shown[self._read : at]
        self._read = at + len(text)
        return piece

    def attributes(self) -> list[object]:
        """The terminal's modes as they are now."""
        return list(termios.tcgetattr(self.theirs))

    def is_raw(self) -> bool:
        """Whether keys come one by one and are not echoed."""
        modes = termios.tcgetattr(self.theirs)[3]
        return not modes & (termios.ICANON | termios.ECHO | termios.ISIG)

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        """Wait for the program's end, reading what it says; return its exit status."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running; {self.shown[self._read :]!r}"
            if select.select([self.ours], [], [], 0.05)[0]:
                self.shown += os.read(self.ours, 65536)
        return self.process.returncode


@contextlib.contextmanager
def in_terminal(argv: Sequence[object], environment: Mapping[str, str]) -> Iterator[Terminal]:
    """Start a program in a terminal of 40 rows and 132 columns; ended with the block."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("<HHHH", 40, 132, 0, 0))
        before = list(termios.tcgetattr(theirs))
        process = subprocess.Popen(
            [str(word) for word in argv],
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=_take_terminal,
        )
        try:
            yield Terminal(ours, theirs, process, before)
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(ours)
        os.close(theirs)
