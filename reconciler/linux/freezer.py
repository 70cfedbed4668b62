"""Stopping all processes of a cgroup where they stand, and letting them go on.

Version 2 has cgroup.freeze in every cgroup, version 1 a hierarchy of its own (cgroup-v2.rst and
cgroup-v1/freezer-subsystem.rst in the kernel's documentation). Both work in their own time, and say
when they are done. What is in neither gets SIGSTOP, and what version 1 has only some threads of.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from reconciler.errors import Busy
from reconciler.linux import cgroups, identity, proc_stat

if TYPE_CHECKING:
    from collections.abc import Sequence

_POLL_SECONDS = 0.01
_STOPPED = frozenset("TtZX")
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_GONE = frozenset({errno.ENOENT, errno.ENODEV})


class _Switch(NamedTuple):
    """What freezes one cgroup with all below it: a file of it, and the one that says how far."""

    directory: Path
    file: str
    freeze: bytes
    thaw: bytes
    state: str
    frozen: bytes

    def turn(self, word: bytes) -> bool:
        """Write to the file; False when there is no such cgroup, or it is not ours to freeze."""
        try:
            cgroups.write_file(self.directory / self.file, word)
        except OSError as error:
            if error.errno not in _REFUSED | _GONE:
                raise
            return False
        return True

    @property
    def done(self) -> bool:
        """Whether all that is in it stands still."""
        try:
            lines = (self.directory / self.state).read_bytes().splitlines()
        except OSError as error:
            if error.errno not in _GONE:
                raise
            return False
        return self.frozen in lines


def freeze(directories: Sequence[Path], *, timeout_seconds: float = 10.0) -> None:
    """Stop every process in these cgroups, of any hierarchy, and below; wait until all stand still.

    Twice is the same as once. Raises Busy when some still run after the timeout: those that are
    stopped stay so.
    """
    deadline = time.monotonic() + timeout_seconds
    _let_go_of_parts(directories)
    switch = _best(directories)
    if switch is not None and not switch.turn(switch.freeze):
        switch = None
    before: frozenset[int] | None = None
    while True:
        members = _members(directories)
        loose = members - _held(switch)
        for pid in loose:
            if not _stands(pid):
                _signal(pid, directories, signal.SIGSTOP)
        still = (switch is None or switch.done) and all(map(_stands, loose))
        # What runs may fork: it is done when the same processes are seen twice, all standing still.
        if still and members == before:
            return
        before = members
        if time.monotonic() >= deadline:
            left = ", ".join(map(str, sorted(pid for pid in members if not _stands(pid))))
            raise Busy(
                "Processes of a cgroup cannot be frozen.", details=f"{directories[0]}: PIDs {left}"
            )
        time.sleep(_POLL_SECONDS)


def is_frozen(directories: Sequence[Path]) -> bool:
    """Whether every process in these cgroups stands still, and there is one."""
    members = _members(directories)
    held = frozenset[int]().union(*(_held(each) for each in _switches(directories) if each.done))
    return bool(members) and all(map(_stands, members - held))


def thaw(directories: Sequence[Path]) -> None:
    """Let every process in these cgroups go on; where none is stopped, nothing happens."""
    for switch in _switches(directories):
        switch.turn(switch.thaw)
    for pid in _members(directories):
        _signal(pid, directories, signal.SIGCONT)


def _switches(directories: Sequence[Path]) -> list[_Switch]:
    """The freezers among these cgroups, version 2's first: what is frozen there can be killed."""
    v2 = [
        _Switch(each, "cgroup.freeze", b"1", b"0", "cgroup.events", b"frozen 1")
        for each in directories
        if (each / "cgroup.freeze").exists()
    ]
    file = cgroups.V1_FREEZER
    v1 = [
        _Switch(each, file, b"FROZEN", b"THAWED", file, b"FROZEN")
        for each in directories
        if (each / file).exists()
    ]
    return v2 + v1


def _best(directories: Sequence[Path]) -> _Switch | None:
    """The one that holds most. Not both: what version 1 froze never gets to version 2's stop."""
    switches = [each for each in _switches(directories) if _held(each)]
    return max(switches, key=lambda each: len(_held(each)), default=None)


def _held(switch: _Switch | None) -> frozenset[int]:
    """The processes that it stops with all their threads."""
    if switch is None:
        return frozenset()
    listed = cgroups.list_procs(switch.directory)
    if switch.file != cgroups.V1_FREEZER:
        return listed
    tasks = cgroups.list_tasks(switch.directory)
    return frozenset(pid for pid in listed if _threads(pid) <= tasks)


def _threads(pid: int) -> frozenset[int]:
    try:
        return frozenset(map(int, os.listdir(f"/proc/{pid}/task")))
    except (FileNotFoundError, ProcessLookupError):
        return frozenset()


def _let_go_of_parts(directories: Sequence[Path]) -> None:
    """Thaw version 1's freezers that hold only some threads of a process, which get SIGSTOP.

    Frozen, a thread takes no part in the stop of all, so that would never come to its end. It has
    its signal before it is thawed, and takes no step in between.
    """
    for switch in _switches(directories):
        if parts := cgroups.list_procs(switch.directory) - _held(switch):
            for pid in parts:
                _signal(pid, directories, signal.SIGSTOP)
            switch.turn(switch.thaw)


def _members(directories: Sequence[Path]) -> frozenset[int]:
    return frozenset[int]().union(*map(cgroups.list_procs, directories))


def _signal(pid: int, directories: Sequence[Path], signo: int) -> None:
    for directory in directories:
        if pid and pid in cgroups.list_procs(directory):
            cgroups.signal_member(pid, directory, signo)
            return


def _stands(pid: int) -> bool:
    """Whether all threads are stopped; never of one that we do not see, which may be hidden.

    One that is gone is in no later listing.
    """
    try:
        tasks = os.open(f"/proc/{pid}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return False
    try:
        return all(_state(tasks, tid) in _STOPPED for tid in os.listdir(tasks))
    except ProcessLookupError:
        return False
    finally:
        os.close(tasks)


def _state(tasks: int, tid: str) -> str:
    try:
        return proc_stat.parse_stat(identity.read_at(tasks, f"{tid}/stat")).state
    except (FileNotFoundError, ProcessLookupError):
        return "X"
