"""Filling a pool while nobody waits for it: in a process of its own, which ends when it is full."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import reconciler
from reconciler.engine import warm
from reconciler.errors import BoxError

_STREAMS = range(3)
_BEGIN_SECONDS = 30.0
_OTHER_SECONDS = 60.0
_BEGIN = """
import os, sys
from pathlib import Path
root, home, name = sys.argv[1:]
sys.path.insert(0, root)
from reconciler.engine.refilling import refill_in_background
os.umask(0o077)
refill_in_background(Path(home), name)
"""


def refill_in_background(home: Path, name: str, ended: Sequence[str] = ()) -> None:
    """Begin to fill the pool of a sandbox and return at once; first what is left of `ended` goes.

    The process belongs to nobody: it has no terminal, none of our streams, and outlives us. Unless
    somebody is at it, it has the pool's lock from the start, so that whoever waits for that waits
    for its end.
    """
    with warm.filling(home, name) as lock:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        try:
            os.setsid()
            if os.fork() == 0:
                _detach(lock)
                _discard(home, ended)
                _refill(home, name, alone=lock is not None)
        finally:
            os._exit(0)


def refill_beside(home: Path, name: str) -> None:
    """The same for a process that may have threads: forked, it would hold their locks for ever.

    What cannot be begun is left to the next command or pass: nothing is raised.
    """
    from reconciler.linux import process

    root = Path(reconciler.__file__).parents[1]
    # A Python that is part of another program does not know where one is.
    if sys.executable:
        with contextlib.suppress(BoxError):
            process.run(
                [sys.executable, "-I", "-B", "-c", _BEGIN, root, home, name],
                timeout_seconds=_BEGIN_SECONDS,
                env=os.environ,
                check=False,
            )


def _detach(lock: int | None) -> None:
    for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signo, signal.SIG_DFL)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in _STREAMS:
        os.dup2(null, fd)
    keep = len(_STREAMS) - 1 if lock is None else lock
    os.closerange(len(_STREAMS), keep)
    os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))


def _discard(home: Path, ended: Sequence[str]) -> None:
    from reconciler.engine import traces

    for vm in ended:
        # What cannot be taken away now is found by the next command or pass.
        with contextlib.suppress(OSError, BoxError):
            traces.discard_named(home, vm)


def _refill(home: Path, name: str, *, alone: bool) -> None:
    from reconciler.engine import records, warming

    record = records.sandbox_record(home, name)
    if record is None or not record.spec.warm or record.spec.state == "stopped":
        return
    if alone:
        warming.fill_alone(home, record.spec, lambda _: None)
    else:
        # Whoever is at it may have counted before ours was taken.
        warming.fill(home, record.spec, lambda _: None, wait_seconds=_OTHER_SECONDS)
