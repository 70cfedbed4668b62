"""Whether the host has room for one more VM: memory now, disk for its snapshot."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from reconciler.confinement.policy import MIB, VMM_OVERHEAD_MIB
from reconciler.engine import records
from reconciler.errors import Busy
from reconciler.linux import identity

_MEMINFO = Path("/proc/meminfo")


class NoMemory(Busy):
    """The host has not enough free memory for the VM."""


def check_memory(home: Path, ram_mib: int) -> None:
    """Refuse a VM that the host's available memory cannot hold. Raises NoMemory.

    Waiting VMs count in full: they use little yet, and all of it once a command takes them.
    """
    waiting = sum(_promised_mib(vm) for vm in records.vm_records(home) if vm.kind == records.WARM)
    available = max(0, available_mib() - waiting)
    wanted = ram_mib + VMM_OVERHEAD_MIB
    if available < wanted:
        kept = f" besides {waiting} MiB that waiting VMs may yet use" if waiting else ""
        raise NoMemory(
            f"Not enough free memory: the VM may use {wanted} MiB, {available} MiB are available"
            f"{kept}.",
            hint="lower `ram_mib` or `warm` in a Boxfile, or stop another sandbox: box down NAME",
        )


def _promised_mib(vm: records.VmRecord) -> int:
    """What a VM may still come to use beyond what it uses now."""
    most = vm.spec.ram_mib + VMM_OVERHEAD_MIB
    if vm.identity is None:
        return most  # being started
    with identity.open_process(vm.identity) as vmm:
        return max(0, most - _resident_mib(vmm)) if vmm is not None else 0


def _resident_mib(vmm: identity.Process) -> int:
    try:
        # statm(5): the second number is the resident set, in pages.
        pages = int(vmm.read("statm").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // MIB


def room_for_snapshot(directory: Path, ram_mib: int) -> bool:
    """Whether a snapshot, at most as large as the guest's memory, fits with as much to spare."""
    return shutil.disk_usage(directory).free > 2 * ram_mib * MIB


def available_mib() -> int:
    """The memory that new processes can have without others giving up theirs, in MiB."""
    return _available_mib(_MEMINFO.read_text())


def _available_mib(meminfo: str) -> int:
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) // 1024
    raise ValueError("no MemAvailable in /proc/meminfo")
