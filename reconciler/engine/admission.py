"""Whether the host has room for one more VM: memory now, disk for its snapshot."""

from __future__ import annotations

import shutil
from pathlib import Path

from reconciler.confinement.policy import MIB, VMM_OVERHEAD_MIB
from reconciler.errors import Busy

_MEMINFO = Path("/proc/meminfo")


class NoMemory(Busy):
    """The host has not enough free memory for the VM."""


def check_memory(ram_mib: int) -> None:
    """Refuse a VM that the host's available memory cannot hold. Raises NoMemory."""
    available = available_mib()
    wanted = ram_mib + VMM_OVERHEAD_MIB
    if available < wanted:
        raise NoMemory(
            f"Not enough free memory: the VM may use {wanted} MiB, {available} MiB are available.",
            hint="lower `ram_mib` in the Boxfile, or stop another sandbox: box down NAME",
        )


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
