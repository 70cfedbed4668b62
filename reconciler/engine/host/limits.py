"""Whether limits can be put in force here: a cgroup is made, given limits, read back, removed."""

from __future__ import annotations

import os
from pathlib import Path

from reconciler.backends import runtime
from reconciler.confinement.policy import MIB
from reconciler.engine.host import throwaway
from reconciler.engine.host.check import Seen, failed, ok
from reconciler.linux import cgroups, delegation

_BYTES = 64 * MIB
_PIDS = 129
# Memory first: version 1 refuses a limit on both that is below the one on memory.
_V1 = (
    ("memory", "memory.limit_in_bytes", _BYTES),
    ("memory", "memory.memsw.limit_in_bytes", _BYTES),
)
_V2 = (("memory", "memory.max", _BYTES), ("memory", "memory.swap.max", 0))
_NO_SWAP_LIMIT = "boot with swapaccount=1 on the kernel's command line"


def try_limits(home: Path) -> Seen:
    """Write the limits of a VMM where its cgroup would be. Raises Missing without delegation."""
    chosen = runtime.find_runtime()
    runtime.ensure_delegation(chosen)
    layout = cgroups.detect()
    if chosen.systemd:
        # It makes the cgroup of each jail; that of the container check is such a one.
        return ok(f"cgroups {layout.kind}, made by systemd")
    with throwaway.place(home) as name:
        path = runtime.cgroup_path(chosen, name)
        for directory in layout.directories(path):
            directory.mkdir()
        problem = _write_all(layout, path)
    if problem is not None:
        return problem
    parent = delegation.parent_of(os.getuid())
    return ok(f"cgroups {layout.kind}: limits on memory, swap and processes hold below {parent}")


def _write_all(layout: cgroups.Layout, path: str) -> Seen | None:
    memory = layout.of_controller("memory")
    files = _V1 if memory is not None and memory.version == 1 else _V2
    for controller, name, value in (*files, ("pids", "pids.max", _PIDS)):
        hierarchy = layout.of_controller(controller)
        if hierarchy is None:
            return failed(f"the kernel has no cgroup controller {controller}", "boot one that has")
        file = hierarchy.directory(path) / name
        if not file.exists() and "sw" in name:
            return failed(f"this kernel limits no swap: there is no {name}", _NO_SWAP_LIMIT)
        problem = write_and_read_back(file, value)
        if problem:
            uid = os.getuid()
            return failed(problem, delegation.setup_line(uid) if uid else f"ls -ld {file}")
    return None


def write_and_read_back(file: Path, value: int) -> str | None:
    """Why a file of a cgroup does not hold `value` after that was written to it, or None."""
    try:
        cgroups.write_file(file, str(value).encode())
        held = file.read_text().strip()
    except OSError as error:
        return f"{file}: {error.strerror}"
    return None if held == str(value) else f"{file}: wrote {value}, and the kernel holds {held}"
