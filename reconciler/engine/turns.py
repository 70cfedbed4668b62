"""Not too many VMs being started at once: more than the host has CPUs only hinder one another."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from reconciler.errors import Busy
from reconciler.linux import files

_LOOK_SECONDS = 0.02
_TOLD_AFTER_SECONDS = 1.0
_LONGEST_SECONDS = 60.0
"""Then it is started all the same: a turn is a courtesy, and who has one may have been stopped."""


@contextlib.contextmanager
def turn(home: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Hold one of as many turns as there are CPUs, waiting for one if need be.

    The kernel takes it from a holder that ends.
    """
    with contextlib.ExitStack() as stack:
        began = time.monotonic()
        told = False
        while not _take_one(home, stack):
            waited = time.monotonic() - began
            if waited > _LONGEST_SECONDS:
                break
            if waited > _TOLD_AFTER_SECONDS and not told:
                progress("waiting for other VMs that are being started")
                told = True
            time.sleep(_LOOK_SECONDS)
        yield


def _take_one(home: Path, stack: contextlib.ExitStack) -> bool:
    for number in range(len(os.sched_getaffinity(0))):
        with contextlib.suppress(Busy):
            lock = files.locked(home / f"starting.{number}.lock", timeout_seconds=0)
            stack.enter_context(lock)
            return True
    return False
