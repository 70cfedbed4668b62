"""How much more fits on this host: slots, memory, disk, inodes."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path

from reconciler.confinement.policy import MIB, SLOT_SIZE, VMM_OVERHEAD_MIB, Slot
from reconciler.engine import admission, slots
from reconciler.engine.home import disk_of
from reconciler.engine.host import throwaway
from reconciler.engine.host.check import Seen, failed, finding, not_applicable, ok
from reconciler.linux import ids, process, subids

# The least that a Boxfile may ask for.
_SMALLEST_MIB = 128 + VMM_OVERHEAD_MIB
# Images, a snapshot and some /data.
_LEAST_DISK_MIB = 1024
_LEAST_INODES = 4096


def look_slots(etc: Path = Path("/etc")) -> Seen:
    """How many strict sandboxes the user's subordinate IDs hold, and how many are free."""
    uid = os.getuid()
    name = subids.user_name(uid)
    tables = subids.read_tables(etc)
    own = ids.slots(subids.ranges_of(tables, name, uid))
    refused = [slot for slot in own if ids.conflict(slot, tables, name, uid)]
    # Those of homes that were deleted are given up by the next who needs one.
    owners = {owner: slot for owner, slot in slots.held().items() if owner.exists()}
    held = {slot.uid_base for owner, slot in owners.items() if not throwaway.is_one(owner)}
    running = ids.uids_in_use()
    left = [slot for slot in own if slot not in refused and slot.uid_base not in held]
    free = [slot for slot in left if not _is_busy(slot, running)]
    taken = sum(slot.uid_base in held for slot in own)
    found = f"slots for strict sandboxes: {len(own)}, held: {taken}, free: {len(free)}"
    if refused:
        found += f"; {len(refused)} hold IDs of others and are not used"
    if len(left) > len(free):
        found += f"; {len(left) - len(free)} still have a process"
    if free:
        return ok(found)
    if subids.missing_tables(etc):
        setup = (process.own_program(), "setup", "--user", name, "--slots", "1")
        return failed(found, shlex.join(setup if uid == 0 else ("sudo", *setup)))
    line = subids.usermod_line(tables, name)
    return failed(found, subids.with_sudo(line) if uid != 0 else line)


def _is_busy(slot: Slot, running: frozenset[int]) -> bool:
    return any(slot.uid_base <= uid < slot.uid_base + SLOT_SIZE for uid in running)


def look_memory() -> Seen:
    """The memory that is available, and how many of the smallest VMs that is."""
    available = admission.available_mib()
    found = f"{available} MiB available; the smallest VM may use {_SMALLEST_MIB} MiB"
    if available < _SMALLEST_MIB:
        return failed(found, "end something, or stop a sandbox: box down NAME")
    return ok(found)


def look_disk(home: Path) -> Seen:
    """The space on the home's file system."""
    stat = os.statvfs(home)
    free, total = (blocks * stat.f_frsize // MIB for blocks in (stat.f_bavail, stat.f_blocks))
    found = f"{free} of {total} MiB free below {home}"
    if free < _LEAST_DISK_MIB:
        need = f"{found}; images and snapshots need {_LEAST_DISK_MIB}"
        return failed(need, f"free some disk space: du -sh {shlex.quote(str(home))}/*")
    promised = _promised_bytes(home) // MIB
    found += f"; /data of its sandboxes may still take {promised}"
    if promised > free:
        return finding(
            f"{found}: who fills them is paused before it is full, if `box watch` runs",
            "declare a smaller data_size, or destroy a sandbox with its data: "
            "box destroy NAME --data",
        )
    return ok(found)


def _promised_bytes(home: Path) -> int:
    """What the sparse disks of all sandboxes of a home may still grow by."""
    promised = 0
    for directory in (home / "sandboxes").glob("*"):
        # Gone, or no regular file: neither grows.
        with contextlib.suppress(OSError):
            disk = os.lstat(disk_of(home, directory.name))
            promised += max(0, disk.st_size - disk.st_blocks * 512)
    return promised


def look_inodes(home: Path) -> Seen:
    """How many more files the home's file system takes."""
    stat = os.statvfs(home)
    if stat.f_files == 0:
        return not_applicable("this file system has no fixed number of inodes")
    found = f"{stat.f_favail} of {stat.f_files} inodes free below {home}"
    if stat.f_favail < _LEAST_INODES:
        return failed(found, "remove many small files on that file system: df -i shows it")
    return ok(found)
