"""Filling a pool while nobody waits for it: in a process of its own, which ends when it is full."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

import reconciler
from reconciler.engine import warm
from reconciler.errors import BoxError

_STREAMS = range(3)
_BEGIN_SECONDS = 30.0
_BEGIN = """
import os, sys
from pathlib import Path
root, home, name = sys.argv[1:]
sys.path.insert(0, root)
from reconciler.engine.refilling import refill_in_background
os.umask(0o077)
refill_in_background(Path(home), name)
"""


def refill_in_background(home: Path, name: str) -> None:
    """Begin to fill the pool of a sandbox, unless somebody is at it, and return at once.

    The process belongs to nobody: it has no terminal, none of our streams, and outlives us. It has
    the pool's lock from the start, so that whoever waits for that waits for its end.
    """
    with warm.filling(home, name) as lock:
        if lock is None:
            return
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        try:
            os.setsid()
            if os.fork() == 0:
                _detach(lock)
                _refill(home, name)
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


def _detach(lock: int) -> None:
    for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signo, signal.SIG_DFL)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in _STREAMS:
        os.dup2(null, fd)
    os.closerange(len(_STREAMS), lock)
    os.closerange(lock + 1, os.sysconf("SC_OPEN_MAX"))


def _refill(home: Path, name: str) -> None:
    from reconciler.engine import records, warming

    record = records.sandbox_record(home, name)
    if record is not None and record.spec.warm and record.spec.state != "stopped":
        warming.fill_alone(home, record.spec, lambda _: None)
