"""What is missing on this host, found by looking: nothing is changed."""

from __future__ import annotations

import os
from pathlib import Path

from reconciler.backends import runtime
from reconciler.engine.host import packages
from reconciler.engine.host.need import Account, Need, NeedKind
from reconciler.errors import Missing
from reconciler.guest import build
from reconciler.images import kernel
from reconciler.linux import cgroups, delegation, ids, scopes, subids

SLOTS_GIVEN = 16
"""So many slots somebody has after being given some: giving them takes root, IDs cost nothing."""


def host_needs(account: Account, *, slots: int) -> tuple[Need, ...]:
    """What only root can bring, for sandboxes of `account`, `slots` of them strict.

    Raises BoxError when a table of IDs cannot be read.
    """
    found = (
        _packages(account),
        _subordinate_ids(account, slots),
        _cgroups(account),
        _agent(account),
    )
    return tuple(need for need in found if need is not None and need.needs_root)


def home_needs(account: Account, home: Path) -> tuple[Need, ...]:
    """What `account`, who we are, brings without root."""
    agent = _agent(account)
    return tuple(
        need for need in (*_kernel(home), agent) if need is not None and not need.needs_root
    )


def list_needs(home: Path) -> tuple[Need, ...]:
    """The package lists, where the guest's kernel is still to be found in them. Root's work."""
    manager = packages.find_manager()
    if not _kernel(home) or manager is None or packages.knows_packages(manager):
        return ()
    return (
        Need(
            NeedKind.PACKAGE_LISTS,
            "the package lists",
            "the guest's kernel is looked up in them",
            ((manager.name, "update"),),
            needs_root=True,
        ),
    )


def usable_slots(account: Account, etc: Path = Path("/etc")) -> int:
    """How many strict sandboxes the subordinate IDs of `account` have room for."""
    tables = subids.read_tables(etc)
    own = ids.slots(subids.ranges_of(tables, account.name, account.uid))
    return sum(ids.conflict(slot, tables, account.name, account.uid) is None for slot in own)


def _packages(account: Account) -> Need | None:
    parts = packages.missing_parts(account.uid)
    if not parts:
        return None
    manager = packages.find_manager()
    names = manager.names(parts) if manager else ()
    return Need(
        NeedKind.PACKAGES,
        " ".join(names) if manager else "programs that your package manager has",
        "; ".join(part.what for part in parts),
        (manager.to_paste(names),) if manager else (),
        needs_root=True,
        packages=names,
    )


def _subordinate_ids(account: Account, slots: int) -> Need | None:
    have = usable_slots(account)
    if have >= slots:
        return None
    more = max(slots, SLOTS_GIVEN) - have
    command = subids.usermod_command(subids.read_tables(), account.name, more)
    if command is None:
        raise Missing(
            f"{account.name} needs {more} more slots of subordinate IDs and none are left.",
            hint=subids.usermod_line(subids.read_tables(), account.name),
        )
    return Need(
        NeedKind.SUBORDINATE_IDS,
        f"{more} times 65,536 subordinate IDs for {account.name}",
        f"each strict sandbox has a host UID of its own: {slots} wanted, room for {have}",
        (*_tables_made(), command),
        needs_root=True,
    )


def _tables_made() -> tuple[tuple[str, ...], ...]:
    """What makes the tables that usermod needs, for all to read, whatever the umask."""
    missing = subids.missing_tables()
    return (("touch", *missing), ("chmod", "644", *missing)) if missing else ()


def _cgroups(account: Account) -> Need | None:
    if account.uid == 0 or runtime.has_manager(account.uid):
        return None
    if scopes.can_have_manager():
        return Need(
            NeedKind.CGROUPS,
            f"a user manager of systemd that {account.name}'s login does not end",
            "it makes the cgroups that limits are in force in (it needs dbus-user-session)",
            scopes.manager_commands(account.name, account.uid),
            needs_root=True,
        )
    if _delegated(account):
        return None
    return Need(
        NeedKind.CGROUPS,
        f"the cgroup {delegation.parent_of(account.uid)} for {account.name}",
        "limits are in force only in a cgroup; no systemd makes one here (once per boot)",
        (("box", "setup", "--user", str(account.uid)),),
        needs_root=True,
    )


def _delegated(account: Account) -> bool:
    parent = delegation.parent_of(account.uid)
    if os.geteuid() == account.uid:
        return delegation.probe_delegation(parent) is None
    directories = cgroups.detect().directories(parent)
    return all(path.is_dir() and path.stat().st_uid == account.uid for path in directories)


def _agent(account: Account) -> Need | None:
    if build.built_agent(build.host_architecture()) is not None:
        return None
    # Whoever owns the checkout compiles it, so that no user is left with files of root's.
    needs_root = build.SOURCES.stat().st_uid != account.uid or account.uid == 0
    command = ("box", "setup", "--user", str(account.uid))
    return Need(
        NeedKind.AGENT,
        "the guest's agent, compiled",
        "the first process of each guest",
        (command,) if needs_root and account.uid != 0 else (),
        needs_root=needs_root,
    )


def _kernel(home: Path) -> tuple[Need, ...]:
    if os.environ.get("BOX_KERNEL"):
        return ()
    try:
        kernel.find_kernel(home)
    except Missing:
        return (
            Need(
                NeedKind.KERNEL,
                "the guest's kernel, the distribution's own",
                f"downloaded and unpacked below {home}, not installed",
                (),
                needs_root=False,
            ),
        )
    return ()
