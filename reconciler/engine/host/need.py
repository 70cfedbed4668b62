"""A need: something that the host lacks, why it matters, and the commands that bring it."""

from __future__ import annotations

import pwd
from dataclasses import dataclass
from enum import StrEnum

from reconciler.errors import Missing
from reconciler.linux import subids


class NeedKind(StrEnum):
    """What a need is met by."""

    PACKAGES = "packages"
    PACKAGE_LISTS = "package_lists"
    SUBORDINATE_IDS = "subordinate_ids"
    CGROUPS = "cgroups"
    AGENT = "agent"
    KERNEL = "kernel"


@dataclass(frozen=True)
class Need:
    """One thing that is missing. `fix` holds whole command lines, in order.

    `packages` are those that the fix installs.
    """

    kind: NeedKind
    what: str
    why: str
    fix: tuple[tuple[str, ...], ...]
    needs_root: bool
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Account:
    """The user whose sandboxes these are."""

    name: str
    uid: int
    gid: int


def account_of(user: str) -> Account:
    """The account with this name or number. Raises Missing."""
    try:
        found = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except (KeyError, OverflowError) as error:
        raise Missing(f"This host has no user {user}.", hint="give a name or a UID") from error
    return Account(found.pw_name, found.pw_uid, found.pw_gid)


def own_account(uid: int, gid: int) -> Account:
    """The account of a process: one without an entry in passwd goes by its number."""
    return Account(subids.user_name(uid), uid, gid)
