"""Slots: the 65,536 subordinate IDs that each strict sandbox has for itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from reconciler.confinement.policy import SLOT_SIZE, Slot
from reconciler.errors import Busy, Missing
from reconciler.linux import files, procfs, subids
from reconciler.linux.subids import HostRange, SubordinateRanges, Tables


class NoSlot(Missing):
    """No slot is free; the hint is the command that adds one."""


def slots(ranges: SubordinateRanges) -> tuple[Slot, ...]:
    """All whole slots of a user's ranges, numbered; a slot has the same index in both."""
    pairs = zip(_bases(ranges.uids), _bases(ranges.gids), strict=False)
    return tuple(Slot(index, uid, gid) for index, (uid, gid) in enumerate(pairs))


def _bases(ranges: tuple[HostRange, ...]) -> list[int]:
    return [
        base for each in ranges for base in range(each.start, each.end - SLOT_SIZE + 1, SLOT_SIZE)
    ]


def conflict(slot: Slot, tables: Tables, name: str, uid: int) -> str | None:
    """Why `slot` must not be used although it is in the user's ranges, or None."""
    names = {name, str(uid)}
    for kind, base, lines, accounts in (
        ("UID", slot.uid_base, tables.subuids, tables.uids),
        ("GID", slot.gid_base, tables.subgids, tables.gids),
    ):
        whole = HostRange(base, SLOT_SIZE)
        for line in lines:
            if line.owner not in names and line.range.overlaps(whole):
                return f"{kind}s {base}-{whole.end - 1} overlap a range of {line.owner}"
        for account in sorted(accounts):
            if base <= account < whole.end:
                return f"{kind} {account} in {base}-{whole.end - 1} is an account's"
    return None


def uids_in_use(proc: Path = Path("/proc")) -> frozenset[int]:
    """Every UID, of all four kinds, that a process we can see has.

    One that has ended and waits for its parent has no use for them any more.
    """
    used: set[int] = set()
    for entry in proc.iterdir():
        if entry.name.isdigit():
            try:
                status = procfs.parse_status((entry / "status").read_bytes())
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            # A leader that has ended is a zombie too while its other threads run on.
            if status.state != "Z" or status.threads > 1:
                used.update(status.uids)
    return frozenset(used)


def allocate(ledger: Path, owner: str, *, etc: Path = Path("/etc")) -> Slot:
    """The slot of sandbox `owner`: the one it has, else the first free one, recorded.

    Free means: no sandbox in this ledger has it, no process has a UID of it, and it overlaps
    neither another user's range nor an account. Raises NoSlot with the command that adds one.
    """
    uid = os.getuid()
    name = subids.user_name(uid)
    tables = subids.read_tables(etc)
    own = slots(subids.ranges_of(tables, name, uid))
    with files.locked(ledger / "slots.lock"):
        held = _load(ledger)
        if owner in held:
            _refuse_if_lost(held[owner], own, tables, name)
            return held[owner]
        running = uids_in_use()
        taken = {slot.uid_base for slot in held.values()}
        reasons = []
        for slot in own:
            reason = conflict(slot, tables, name, uid) or _busy(slot, running)
            if slot.uid_base in taken:
                continue
            if reason is None:
                _store(ledger, {**held, owner: slot})
                return slot
            reasons.append(reason)
    # Of these: a range that was exchanged leaves others held.
    count = sum(slot.uid_base in taken for slot in own)
    details = "\n".join([f"slots of {name}: {len(own)}, held by sandboxes: {count}", *reasons])
    raise NoSlot(
        "No slot of subordinate IDs is free for a strict sandbox.",
        details=details,
        hint=subids.usermod_line(tables, name),
    )


def _refuse_if_lost(slot: Slot, own: tuple[Slot, ...], tables: Tables, name: str) -> None:
    bases = {(each.uid_base, each.gid_base) for each in own}
    reason = conflict(slot, tables, name, os.getuid())
    if (slot.uid_base, slot.gid_base) not in bases:
        reason = f"it is no longer a slot of {name}'s ranges"
    if reason is not None:
        raise NoSlot(
            f"The sandbox's slot of UIDs from {slot.uid_base} cannot be used any more: {reason}.",
            details="Its files belong to these UIDs, so it cannot just get others.",
            hint="put /etc/subuid and /etc/subgid back as they were, or destroy the sandbox",
        )


def _busy(slot: Slot, running: frozenset[int]) -> str | None:
    for uid in sorted(running):
        if slot.uid_base <= uid < slot.uid_base + SLOT_SIZE:
            return f"UID {uid} of the slot from {slot.uid_base} has a running process"
    return None


def share(ledger: Path, owner: str, parent: str) -> Slot:
    """Give a fork its parent's slot: they share files. Missing when the parent has none."""
    with files.locked(ledger / "slots.lock"):
        held = _load(ledger)
        if parent not in held:
            raise Missing(f"The sandbox {parent} has no slot.")
        if owner in held and held[owner] != held[parent]:
            raise Busy(f"The sandbox {owner} already has another slot.")
        _store(ledger, {**held, owner: held[parent]})
        return held[parent]


def release(ledger: Path, owner: str) -> None:
    """Give up `owner`'s slot; nothing happens without one.

    Raises Busy while a process still has a UID of it and no other sandbox shares it.
    """
    with files.locked(ledger / "slots.lock"):
        held = _load(ledger)
        slot = held.pop(owner, None)
        if slot is None:
            return
        reason = None if slot in held.values() else _busy(slot, uids_in_use())
        if reason is not None:
            raise Busy(f"The slot of {owner} cannot be freed.", details=reason)
        _store(ledger, held)


def held_slots(ledger: Path) -> dict[str, Slot]:
    """Who holds which slot, by the sandbox's name."""
    return _load(ledger)


def _load(ledger: Path) -> dict[str, Slot]:
    try:
        value = files.read_json(ledger / "slots.json")
    except FileNotFoundError:
        return {}
    try:
        return {name: _slot(each) for name, each in value["slots"].items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise files.BrokenFile(f"{ledger / 'slots.json'} does not hold slots") from error


def _slot(value: dict[str, Any]) -> Slot:
    numbers = [value[key] for key in ("index", "uid_base", "gid_base")]
    if any(type(number) is not int or number < 0 for number in numbers):
        raise ValueError(numbers)
    return Slot(*numbers)


def _store(ledger: Path, held: dict[str, Slot]) -> None:
    value = {
        name: {"index": slot.index, "uid_base": slot.uid_base, "gid_base": slot.gid_base}
        for name, slot in held.items()
    }
    files.write_json(ledger / "slots.json", {"slots": value})
