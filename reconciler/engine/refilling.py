"""Filling a pool while nobody waits for it: in a process of its own, which ends when it is full."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from reconciler.engine.spec import Spec

_FIRST_OTHER_FD = 3


def refill_in_background(home: Path, name: str) -> None:
    """Begin to fill the pool of a sandbox and return at once.

    The process belongs to nobody: it has no terminal, none of our streams, and outlives us.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _detach()
            _refill(home, name)
    finally:
        os._exit(0)


def _detach() -> None:
    for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(signo, signal.SIG_DFL)
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(_FIRST_OTHER_FD):
        os.dup2(null, fd)
    os.closerange(_FIRST_OTHER_FD, os.sysconf("SC_OPEN_MAX"))


def _refill(home: Path, name: str) -> None:
    from reconciler.engine import records, warming

    record = records.sandbox_record(home, name)
    if record is not None and _wants(record.spec):
        warming.fill(home, record.spec, lambda _: None)


def _wants(spec: Spec) -> bool:
    return spec.warm > 0 and spec.state != "stopped"
