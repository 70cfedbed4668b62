"""Checks for tests of what the doctor prints."""

from __future__ import annotations

from reconciler.engine.host.bearings import bearing_of
from reconciler.engine.host.check import Check, Group, Seen, failed, finding, not_applicable, ok
from reconciler.engine.host.checks import IDS


def check(check_id: str, seen: Seen) -> Check:
    group = Group.NEEDED
    if check_id in {"slots", "memory", "disk", "inodes"}:
        group = Group.CAPACITY
    elif check_id.startswith(("host.", "version.")):
        group = Group.HOST
    return Check(check_id, group, seen, 1000, bearing_of(check_id, seen))


def host(**changes: Seen) -> tuple[Check, ...]:
    """A host on which all is well but `changes`, by their ids with _ for a dot."""
    given = {name.replace("_", "."): seen for name, seen in changes.items()}
    well = {name: ok(f"{name} is well, as far as can be told by trying it") for name in IDS}
    return tuple(check(name, seen) for name, seen in {**well, **given}.items())


HEALTHY = host(
    container_standard=not_applicable("root's sandboxes are strict"),
    reading_label=not_applicable("no security module of this host labels processes"),
    version_crun=not_applicable("crun is not installed"),
)
WORST = tuple(
    check(name, (failed if number % 2 else finding)(f"{name} is bad " + "x y " * 40, "fix it " * 9))
    for number, name in enumerate(IDS)
)
