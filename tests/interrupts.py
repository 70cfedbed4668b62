"""An interrupt of a block of the test's own process, as Ctrl-C is one."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def interrupted(when: float | Callable[[], object]) -> Iterator[None]:
    """Send SIGINT once into the block, after so many seconds or when `when` returns.

    Python ignores what the handler raises inside a finaliser or a callback of the collector, of
    pytest's and its plugins' too, and tells sys.unraisablehook. A library cannot help that: whoever
    sits before it presses Ctrl-C again, and so does this, but only when told so. An interrupt that
    is lost without that word was lost by us: it is not sent again, and whoever waits for it fails.
    """
    told: queue.SimpleQueue[sys.UnraisableHookArgs | None] = queue.SimpleQueue()
    over = threading.Event()

    def send() -> None:
        if callable(when):
            when()
        elif over.wait(when):
            return
        os.kill(os.getpid(), signal.SIGINT)
        while (what := told.get()) is not None:
            if isinstance(what.exc_value, KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
            else:
                before(what)

    before = sys.unraisablehook
    # No function in Python: an interrupt that came in that would be ignored without a word.
    sys.unraisablehook = told.put
    sender = threading.Thread(target=send)
    try:
        sender.start()
        yield
    finally:
        sys.unraisablehook = before
        over.set()
        told.put(None)
        sender.join()
