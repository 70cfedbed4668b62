"""The processes below a process: those that would outlive it, ended through pidfds."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from reconciler.linux import proc_stat, procfs
from reconciler.linux.proc_stat import ParseError

_PROC = Path("/proc")


def kill_containers(pid: int) -> int:
    """Kill every container below `pid`, and return how many there were.

    A container is a PID namespace of its own: the kernel kills all of it with its first process. A
    runtime may start another one afterwards, so ask again until the process itself has ended.
    """
    killed = 0
    for below in descendants(pid):
        with contextlib.suppress(ProcessLookupError, PermissionError, ParseError):
            killed += _kill_if_first(below)
    return killed


def descendants(pid: int) -> frozenset[int]:
    """Return the PIDs of all processes below `pid`, as far as one look at /proc tells."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, ParseError):
                stat = proc_stat.parse_stat((entry / "stat").read_bytes())
                children.setdefault(stat.parent_pid, []).append(stat.pid)
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        new = [child for child in children.get(waiting.pop(), ()) if child not in found]
        found.update(new)
        waiting.extend(new)
    return frozenset(found)


def _kill_if_first(pid: int) -> bool:
    pidfd = os.pidfd_open(pid)
    try:
        # Read after the pidfd was opened: what is killed is what was read, or is gone.
        with contextlib.suppress(FileNotFoundError):
            status = procfs.parse_status((_PROC / str(pid) / "status").read_bytes())
            if status.pids_by_namespace[-1] == 1:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                return True
    finally:
        os.close(pidfd)
    return False
