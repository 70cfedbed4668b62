"""The checks that two sandboxes have nothing in common: no namespace, no UID, no GID."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.confinement.facts import Fact, Finding, Verdict, conclude, unreadable
from reconciler.confinement.reading import Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.confinement.policy import IdRange, Policy
    from reconciler.confinement.reading import Neighbour, Reading

_NAMESPACES = "apart.namespaces"
_IDS = "apart.ids"


def namespaces(policy: Policy, reading: Reading) -> Fact:
    """No thread is in a namespace of another running sandbox."""
    found = [
        each
        for name, other in reading.neighbours.items()
        for kind in policy.namespaces
        for each in _shared(name, other, kind, reading)
    ]
    return _concluded(_NAMESPACES, found, reading)


def _shared(name: str, other: Neighbour, kind: str, reading: Reading) -> Iterator[Finding]:
    theirs = other.namespaces.get(kind)
    # What is the host's is named by the promise of that namespace.
    if theirs is None or theirs == reading.host.namespaces.get(kind):
        return
    if isinstance(theirs, Unreadable):
        yield unreadable(f"{name}: {theirs.why}")
    elif any(
        thread.namespaces.get(kind) == theirs
        for process in reading.processes
        for thread in process.threads
    ):
        yield Finding(f"its {kind} namespace is also that of {name}")


def ids(policy: Policy, reading: Reading) -> Fact:
    """No ID of its user namespace is one of another running sandbox's."""
    if policy.isolation != "strict":
        why = "standard: your own UID and GID, as all of these have"
        return Fact(_IDS, "nothing in common", why, Verdict.NOT_APPLICABLE)
    found: list[Finding] = []
    for process in reading.processes:
        for name, other in reading.neighbours.items():
            found += _overlap(name, "UIDs", process.uid_map, other.uid_map)
            found += _overlap(name, "GIDs", process.gid_map, other.gid_map)
    return _concluded(_IDS, found, reading)


def _overlap(
    name: str,
    kind: str,
    ours: tuple[IdRange, ...] | Unreadable,
    theirs: tuple[IdRange, ...] | Unreadable,
) -> Iterator[Finding]:
    if isinstance(ours, Unreadable):
        return  # that is a finding of the map's own promise
    if isinstance(theirs, Unreadable):
        yield unreadable(f"{name}: {theirs.why}")
        return
    for one in ours:
        for two in theirs:
            first = max(one.host, two.host)
            last = min(one.host + one.size, two.host + two.size) - 1
            if first <= last:
                yield Finding(f"{kind} {first}-{last} are also those of {name}")


def _concluded(promise: str, found: list[Finding], reading: Reading) -> Fact:
    count = len(reading.neighbours)
    others = "1 other sandbox" if count == 1 else f"{count} other sandboxes"
    have = f"nothing in common with {others}" if count else "no other sandbox runs"
    return conclude(promise, "nothing in common", found, have)
