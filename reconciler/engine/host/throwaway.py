"""A sandbox's place for one trial of the doctor's: its directory and its slot, and no longer.

Its name says whose trial it is, so that the next doctor takes away what a killed one left.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from reconciler.backends import jail, runtime
from reconciler.engine import records, slots, traces
from reconciler.engine.home import sandbox_directory
from reconciler.errors import Busy, Missing
from reconciler.images import scratch
from reconciler.linux import identity
from reconciler.linux.identity import ProcessIdentity

_PREFIX = "doctor-"
# A PID has at most seven digits (PID_MAX_LIMIT).
_NAME = re.compile(r"doctor-([0-9]{1,7})-([0-9]{1,20})-[0-9a-f]{8}")


@contextlib.contextmanager
def place(home: Path) -> Iterator[str]:
    """Yield a name of which nothing is left afterwards, whatever is raised."""
    me = identity.identify(os.getpid())
    ticks = me.start_time_ticks if me else 0
    name = f"{_PREFIX}{os.getpid()}-{ticks}-{secrets.token_hex(4)}"
    try:
        sandbox_directory(home, name)
        yield name
    finally:
        _remove(home, name)


def sweep(home: Path) -> None:
    """Take away what doctors left that were killed."""
    for name in _left(home):
        if _is_abandoned(name):
            _remove_if_possible(home, name)


def sweep_own(home: Path) -> None:
    """The same for this process, which was interrupted while it took something away."""
    for name in _left(home):
        match = _NAME.fullmatch(name)
        if match is not None and int(match[1]) == os.getpid():
            _remove_if_possible(home, name)
    scratch.clean(home)


def _left(home: Path) -> tuple[str, ...]:
    try:
        groups = runtime.groups(runtime.find_runtime(), _PREFIX)
    except Missing:
        groups = frozenset[str]()
    named = {path.name for path in (home / "sandboxes").glob(f"{_PREFIX}*")}
    # A sandbox of somebody's may be called like that: it has a record.
    there = sorted(groups | named)
    return tuple(n for n in there if not (home / "sandboxes" / n / "record.json").exists())


def _remove_if_possible(home: Path, name: str) -> None:
    with contextlib.suppress(Busy, OSError):
        _remove(home, name)


def is_one(owner: Path) -> bool:
    """Whether a slot's owner is a trial of a doctor's that runs."""
    match = _NAME.fullmatch(owner.name)
    return match is not None and not _is_abandoned(owner.name)


def _is_abandoned(name: str) -> bool:
    match = _NAME.fullmatch(name)
    if match is None:
        return False
    who = ProcessIdentity(int(match[1]), int(match[2]), identity.boot_id(), None, None)
    return not identity.runs(who)


def _remove(home: Path, name: str) -> None:
    for vm in records.vm_names(home, name):
        traces.discard_named(home, vm)
    with contextlib.suppress(Missing):
        jail.remove(home, name, runtime.cgroup_path(runtime.find_runtime(), name))
    slots.release(home, name)
    shutil.rmtree(home / "sandboxes" / name, ignore_errors=True)
