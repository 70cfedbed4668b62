"""The checks of who a VMM is to the host: the IDs of its threads, and of its user namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.confinement.facts import Fact, Finding, conclude, unreadable
from reconciler.confinement.reading import Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.confinement.policy import IdRange, Policy
    from reconciler.confinement.reading import Reading, ThreadReading

# /proc/sys/kernel/overflowuid, and what uid_map shows for an ID outside of our user namespace.
_OVERFLOW_ID = 65_534
_UNMAPPED = 4_294_967_295


def _threads(reading: Reading) -> Iterator[tuple[str, ThreadReading]]:
    for process in reading.processes:
        for thread in process.threads:
            yield f"PID {process.pid} thread {thread.tid}", thread


def uid(policy: Policy, reading: Reading) -> Fact:
    """The real, effective, saved and file system UID of every thread."""
    ids = ((where, each.uids) for where, each in _threads(reading))
    return _ids("identity.uid", policy.uid_map, ids)


def gid(policy: Policy, reading: Reading) -> Fact:
    """The same four GIDs."""
    ids = ((where, each.gids) for where, each in _threads(reading))
    return _ids("identity.gid", policy.gid_map, ids)


def _ids(
    promise: str, allowed: tuple[IdRange, ...], ids: Iterable[tuple[str, tuple[int, ...]]]
) -> Fact:
    found = []
    seen: set[int] = set()
    for where, four in ids:
        seen.update(four)
        outside = [i for i in four if not any(r.host <= i < r.host + r.size for r in allowed)]
        if set(outside) == {_OVERFLOW_ID}:
            found.append(unreadable(f"{where}: an ID that our user namespace does not hold"))
        elif outside:
            found.append(Finding(f"{where}: {' '.join(map(str, four))}"))
    return conclude(promise, _show(allowed), found, " ".join(map(str, sorted(seen))))


def _show(ranges: tuple[IdRange, ...]) -> str:
    return ", ".join(
        f"{each.host}" if each.size == 1 else f"{each.host}-{each.host + each.size - 1}"
        for each in ranges
    )


def uid_map(policy: Policy, reading: Reading) -> Fact:
    """The UIDs of its user namespace."""
    maps = ((each.pid, each.uid_map) for each in reading.processes)
    return _map("identity.uid_map", policy.uid_map, maps)


def gid_map(policy: Policy, reading: Reading) -> Fact:
    """The GIDs of its user namespace."""
    maps = ((each.pid, each.gid_map) for each in reading.processes)
    return _map("identity.gid_map", policy.gid_map, maps)


def _map(
    promise: str,
    want: tuple[IdRange, ...],
    maps: Iterable[tuple[int, tuple[IdRange, ...] | Unreadable]],
) -> Fact:
    found = []
    for pid, have in maps:
        if isinstance(have, Unreadable):
            found.append(unreadable(f"PID {pid}: {have.why}"))
        elif any(each.host == _UNMAPPED for each in have):
            found.append(unreadable(f"PID {pid}: IDs that our user namespace does not hold"))
        elif _joined(have) != _joined(want):
            found.append(Finding(f"PID {pid}: {_show_map(have) or 'no IDs'}"))
    return conclude(promise, _show_map(want), found, _show_map(want))


def _show_map(ranges: tuple[IdRange, ...]) -> str:
    return ", ".join(f"{each.inside} {each.host} {each.size}" for each in ranges)


def _joined(ranges: tuple[IdRange, ...]) -> tuple[tuple[int, int, int], ...]:
    """The same map in the fewest lines: one map can be written in many ways."""
    lines: list[tuple[int, int, int]] = []
    for each in sorted(ranges, key=lambda line: line.inside):
        if lines:
            inside, host, size = lines[-1]
            if (inside + size, host + size) == (each.inside, each.host):
                lines[-1] = (inside, host, size + each.size)
                continue
        lines.append((each.inside, each.host, each.size))
    return tuple(lines)
