"""What a VM has on the host, found and taken away by its name alone: cgroup, record, sockets."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from reconciler.backends import jail, runtime
from reconciler.engine import records
from reconciler.engine.records import VmRecord


def discard(home: Path, record: VmRecord) -> None:
    """End a VM at once and take away all traces of it; twice is the same as once."""
    _discard(home, record.vm, record.group)


def discard_named(home: Path, vm: str) -> None:
    """The same for a VM of this home of which only the name is known."""
    _discard(home, vm, group_of(home, vm))


def _discard(home: Path, vm: str, group: str) -> None:
    chosen = runtime.find_runtime()
    jail.remove(home, vm, runtime.cgroup_path(chosen, group))
    records.forget_vm(home, vm)


def group_of(home: Path, vm: str) -> str:
    """The name of the VM's cgroup."""
    return f"{home_tag(home)}-{vm}"


def lost(home: Path) -> frozenset[str]:
    """The VMs of this home that have a cgroup and no record: it was deleted under them."""
    prefix = f"{home_tag(home)}-"
    found = runtime.groups(runtime.find_runtime(), prefix)
    # Records second: a VM's is there before its cgroup, so one that starts now is not lost.
    return frozenset(group.removeprefix(prefix) for group in found) - set(records.vm_names(home))


def home_tag(home: Path) -> str:
    """What the cgroups of this home's VMs begin with: several homes share one host."""
    return hashlib.sha256(os.fsencode(home)).hexdigest()[:8]
