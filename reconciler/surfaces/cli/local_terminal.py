"""The terminal we run in: raw while a command has it, as it was on every way out."""

from __future__ import annotations

import contextlib
import os
import signal
import termios
import tty
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from reconciler.errors import Refused
from reconciler.guest.channel import Session
from reconciler.guest.protocol import Size

# Signals that would end us on the spot, and that nothing else of ours takes.
_FATAL = (
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGIO,
    signal.SIGPWR,
    signal.SIGXCPU,
    signal.SIGSTKFLT,
)

Handler = Callable[[int, FrameType | None], Any]


def size(fd: int) -> Size:
    """The size of a terminal. Raises Refused when `fd` is none."""
    try:
        columns, rows = os.get_terminal_size(fd)
    except OSError as error:
        raise Refused("this is not a terminal", details=str(error)) from error
    return Size(rows, columns)


class HangingUp:
    """A session whose command is told what a terminal tells that is closed.

    Interactive shells ignore SIGTERM; what ends them is the hang-up.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def signal(self, signo: int) -> None:
        """Pass a signal on."""
        self._session.signal(signo)
        if signo == signal.SIGTERM:
            self._session.signal(signal.SIGHUP)


@contextlib.contextmanager
def raw(fd: int, resized: Callable[[Size], object]) -> Iterator[None]:
    """Make every key a byte of the command's; `resized` is told each new size.

    What it was is put back on every way out: an exception, a signal that ends or stops us, the end
    of the block. After a stop it is raw again.
    """
    local = _Local(fd, resized)
    with _handlers(local):
        try:
            local.make_raw()
            yield
        finally:
            # The signal that ends us may come even here. It comes once: see Endings.
            try:
                local.restore()
            finally:
                local.restore()


class _Local:
    def __init__(self, fd: int, resized: Callable[[Size], object]) -> None:
        self._fd = fd
        self._resized = resized
        self._before = termios.tcgetattr(fd)

    def make_raw(self) -> None:
        # Not by tty's default, which drops what was typed ahead.
        tty.setraw(self._fd, termios.TCSANOW)

    def restore(self) -> None:
        """Put it back without waiting for output. A terminal that is gone needs nothing."""
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self._fd, termios.TCSANOW, self._before)

    def resize(self, _signo: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(Refused):
            self._resized(size(self._fd))

    def stop(self, signo: int, frame: FrameType | None) -> None:
        """Stop as we would without a handler; our shell sees the terminal as it was."""
        self.restore()
        signal.signal(signo, signal.SIG_DFL)
        os.kill(os.getpid(), signo)
        signal.signal(signo, self.stop)
        # Nobody stops or continues a process that has no shell above it.
        self.go_on(signo, frame)

    def go_on(self, signo: int, frame: FrameType | None) -> None:
        # From the background it would stop us, and the terminal is another's.
        with contextlib.suppress(OSError, termios.error):
            if os.tcgetpgrp(self._fd) == os.getpgrp():
                self.make_raw()
        self.resize(signo, frame)

    def end(self, signo: int, _frame: FrameType | None) -> None:
        self.restore()
        signal.signal(signo, signal.SIG_DFL)
        os.kill(os.getpid(), signo)


@contextlib.contextmanager
def _handlers(local: _Local) -> Iterator[None]:
    wanted: dict[int, Handler] = dict.fromkeys(_FATAL, local.end)
    wanted |= {
        signal.SIGWINCH: local.resize,
        signal.SIGTSTP: local.stop,
        signal.SIGCONT: local.go_on,
    }
    # What our starter has us ignore stays ignored.
    mine = [each for each in wanted if signal.getsignal(each) is signal.SIG_DFL]
    try:
        for each in mine:
            signal.signal(each, wanted[each])
        yield
    finally:
        for each in mine:
            signal.signal(each, signal.SIG_DFL)
