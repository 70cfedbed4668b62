"""Slots of the sandboxes of all homes of one user: two sandboxes never share a UID.

The ranges in /etc/subuid are the user's, whatever BOX_HOME is, so the ledger is kept where the
user's home directory is, and an entry is the path of the sandbox's directory.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from reconciler.confinement.policy import Slot
from reconciler.engine import place
from reconciler.engine.home import make_private
from reconciler.errors import Busy
from reconciler.linux import ids
from reconciler.linux.ids import NoSlot


def ledger() -> Path:
    """The directory of this user's ledger, made when missing; the environment does not matter.

    Raises Refused when others could write it, or put another in its place.
    """
    path = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".local" / "state" / "box"
    place.check_way(str(path))
    make_private(path)
    return Path(place.private_place(str(path)))


def allocate(home: Path, name: str) -> Slot:
    """The slot of a sandbox of `home`: the one it has, else a free one. Raises NoSlot."""
    owner = _owner(home, name)
    try:
        return ids.allocate(ledger(), owner)
    except NoSlot:
        if not _prune():
            raise
        return ids.allocate(ledger(), owner)


def release(home: Path, name: str) -> None:
    """Give up a sandbox's slot. Raises Busy while a process has a UID of it."""
    ids.release(ledger(), _owner(home, name))


def held() -> dict[Path, Slot]:
    """Who holds which slot: by the sandbox's directory."""
    return {Path(owner): slot for owner, slot in ids.held_slots(ledger()).items()}


def holds(home: Path, name: str) -> bool:
    """Whether a sandbox has a slot already."""
    return Path(_owner(home, name)) in held()


def _prune() -> bool:
    """Free the slots of sandboxes whose home was deleted; whether there was one."""
    pruned = False
    for owner in held():
        if not owner.exists():
            try:
                ids.release(ledger(), str(owner))
            except Busy:
                continue
            pruned = True
    return pruned


def _owner(home: Path, name: str) -> str:
    return str(home / "sandboxes" / name)
