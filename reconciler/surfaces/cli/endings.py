"""The signals that end a command: what was begun is taken away, at whatever moment they come."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Protocol

_AGAIN_SECONDS = 0.01
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Signalled(Protocol):
    """What signals are passed on to: a session, whose command gets them."""

    def signal(self, signo: int) -> None:
        """Pass one on; called from a signal handler."""


class Endings:
    """What a signal that ends us does: the first unwinds, so that what was begun is taken away.

    Later ones are ignored: taking away is bounded in time, and cut short it would leave things
    behind. While a command runs, the first of each kind goes to the command instead.
    """

    def __init__(self) -> None:
        self._session: Signalled | None = None
        self._passed_on: set[int] = set()
        self._ignored = False

    def __call__(self, signo: int, _frame: FrameType | None) -> None:
        """Take one signal."""
        if self._ignored:
            return
        if self._session is not None and signo not in self._passed_on:
            self._passed_on.add(signo)
            self._session.signal(signo)
            return
        self._ignored = True
        raise KeyboardInterrupt(signo)

    def told_of_ignored(self, what: sys.UnraisableHookArgs) -> None:
        """Send us a signal again whose exception Python has ignored: a sys.unraisablehook.

        Python ignores what is raised in a finaliser or a callback of its collector, and in this
        hook too: so in a moment, from another thread, and the handler runs elsewhere.
        """
        error = what.exc_value
        if isinstance(error, KeyboardInterrupt) and error.args:
            self._ignored = False
            _thread.start_new_thread(_send_soon, error.args)
        else:
            sys.__unraisablehook__(what)

    def ignore(self) -> None:
        """Let nothing disturb what follows."""
        self._ignored = True

    @contextlib.contextmanager
    def forwarded(self, session: Signalled) -> Iterator[None]:
        """Pass signals on to the session's command."""
        self._session = session
        try:
            yield
        finally:
            self._session = None


def _send_soon(signo: int) -> None:
    time.sleep(_AGAIN_SECONDS)
    os.kill(os.getpid(), signo)


@contextlib.contextmanager
def unwinding() -> Iterator[Endings]:
    """Make every ending signal unwind, so that what was begun is taken away.

    One that our starter has us ignore (nohup, a shell's background job) stays ignored.
    """
    endings = Endings()
    heard = [each for each in _ENDING if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.getsignal(each) for each in heard}
    hook = sys.unraisablehook
    try:
        sys.unraisablehook = endings.told_of_ignored
        for each in heard:
            signal.signal(each, endings)
        yield endings
    finally:
        sys.unraisablehook = hook
        for each, old in before.items():
            signal.signal(each, old)
