"""Frozen VMs: stopped where they stand, until a person decides, or until there is room again.

That a VM is to be frozen is noted in its directory before it is done, so that no command waits for
what cannot answer; a VM that something else let go on is found by that note and frozen again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.backends import runtime
from reconciler.engine import contact, drift, journal, records
from reconciler.engine.home import sandbox_directory
from reconciler.engine.records import VmRecord
from reconciler.linux import cgroups, files, freezer, identity

if TYPE_CHECKING:
    from reconciler.confinement.facts import Fact

_LOCK_SECONDS = 30.0


@dataclass(frozen=True)
class Frozen:
    """A VM that is to stand still: `since` when (RFC 3339), `why`, and whether it does stand.

    `reason` is contact.DIFFERED, which a person decides on, or contact.NO_SPACE, which passes.
    """

    since: str
    why: str
    reason: str
    stands: bool


def freeze(home: Path, vm: VmRecord, facts: Sequence[Fact]) -> None:
    """Stop all processes of a VM where they stand; twice is the same as once.

    `facts` are those that differ; what was noted before stays. Raises OSError when it cannot be
    noted, the VM frozen all the same; Busy when not all stand still in time.
    """
    with contextlib.ExitStack() as stack:
        # Whatever comes of the note, on a full disk too.
        stack.callback(freezer.freeze, directories(vm))
        with _changing(home, vm) as note:
            if contact.frozen_for(note.parent) != contact.DIFFERED:
                _write(note, contact.DIFFERED, drift.said(facts))


def pause(home: Path, vm: VmRecord, why: str) -> bool:
    """Freeze a VM because the host has no room for what it writes, until `resume`.

    False when it was to stand already, or has ended. Raises OSError when it cannot be noted, and
    then it is not frozen either; Busy when not all stands still in time.
    """
    with contextlib.suppress(FileNotFoundError), _changing(home, vm) as note:
        if not identity.runs(vm.identity):
            return False
        known = note.exists()
        if not known:
            _write(note, contact.NO_SPACE, why)
        try:
            freezer.freeze(directories(vm))
        finally:
            # Not under the sandbox's lock: its cgroup and directory may be the next VM's by now.
            ended = not identity.runs(vm.identity)
            if ended:
                freezer.thaw(directories(vm))
                note.unlink(missing_ok=True)
        return not known and not ended
    return False


def resume(home: Path, vm: VmRecord) -> bool:
    """Let a VM go on that `pause` has frozen; False when there is no such one."""
    with contextlib.suppress(FileNotFoundError), _changing(home, vm) as note:
        if contact.frozen_for(note.parent) == contact.NO_SPACE:
            freezer.thaw(directories(vm))
            note.unlink()
            return True
    return False


@contextlib.contextmanager
def _changing(home: Path, vm: VmRecord) -> Iterator[Path]:
    """Be the only one that changes what is noted of a VM's freezing; yields where it is noted.

    Raises FileNotFoundError when the VM has no directory any more, Busy.
    """
    directory = vm.directory(home)
    with files.locked(directory / "freezing.lock", timeout_seconds=_LOCK_SECONDS):
        yield directory / contact.FROZEN


def _write(note: Path, reason: str, why: str) -> None:
    value = {"since": journal.now(), "why": why, "reason": reason}
    files.write_json(note, value, durable=False)


def frozen(home: Path, vm: VmRecord) -> Frozen | None:
    """What is noted of a running VM's freezing, and whether it is so; None when nothing is."""
    note = vm.directory(home) / contact.FROZEN
    if not note.exists():
        return None
    try:
        value = files.read_json(note)
    except (FileNotFoundError, files.BrokenFile):
        value = {}
    since, why = str(value.get("since", "")), str(value.get("why", ""))
    return Frozen(since, why, contact.reason_of(value), freezer.is_frozen(directories(vm)))


def thaw(home: Path, name: str) -> bool:
    """Let a sandbox's frozen VM go on; False when it is not frozen. Its differences count as known.

    A difference that is still there when the VM is read next is a new one. Raises NotRunning.
    """
    with files.locked(sandbox_directory(home, name) / "lock", timeout_seconds=_LOCK_SECONDS):
        vm = records.vm_record(home, name)
        if vm is None or not identity.runs(vm.identity):
            raise contact.not_running(name)
        with _changing(home, vm) as note:
            reason = contact.frozen_for(note.parent)
            if reason is None:
                return False
            # In this order: killed at any point, it is frozen and said to be, or neither.
            freezer.thaw(directories(vm))
            note.unlink()
        message = "by command"
        if reason == contact.DIFFERED:
            drift.acknowledge(home, name)
            message += "; a difference that is still there is found anew"
        journal.record(home, name, "Normal", "Thawed", message, incarnation=vm.incarnation)
    return True


def directories(vm: VmRecord) -> tuple[Path, ...]:
    """The VM's cgroup in every hierarchy, existing or not."""
    path = runtime.cgroup_path(runtime.find_runtime(), vm.group)
    return cgroups.detect().directories(path)
