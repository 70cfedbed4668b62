"""Compare a reading of a running VMM with its policy: one fact a promise. Pure.

A new promise is one line in `promises`, one part of the reading, and one row in `_CHECKS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.confinement import (
    apart,
    capabilities,
    identities,
    limits,
    mounts,
    noting,
    places,
)
from reconciler.confinement.facts import Fact, Finding, Verdict, conclude, unreadable
from reconciler.confinement.promises import PROMISES
from reconciler.confinement.reading import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.confinement.policy import Policy
    from reconciler.confinement.reading import ProcessReading, Reading, ThreadReading

    Check = Callable[[Policy, Reading], Fact]

_MOST_JUDGED = 1000
_LIMITED = ("memory", "pids")
_FILTER_MODE = 2  # SECCOMP_MODE_FILTER, linux/seccomp.h


_judged: dict[int, tuple[Policy, Reading, tuple[Fact, ...]]] = {}
"""By PID, the last that was judged: the same reading under the same policy has the same facts."""


def judge(policy: Policy, reading: Reading) -> tuple[Fact, ...]:
    """The fact of every promise, in their order. A void reading makes all of them unreadable."""
    last = _judged.get(reading.pid)
    if last and last[:2] == (policy, reading):
        return last[2]
    facts = _judge(policy, reading)
    if len(_judged) >= _MOST_JUDGED:
        _judged.clear()
    _judged[reading.pid] = policy, reading, facts
    return facts


def _judge(policy: Policy, reading: Reading) -> tuple[Fact, ...]:
    facts = []
    for promise in PROMISES:
        fact = _CHECKS[promise.id](policy, reading) if reading.processes else None
        if reading.void is not None or fact is None:
            why = reading.void or "no process was read"
            want = promise.sentence if fact is None else fact.want
            fact = Fact(promise.id, want, why, Verdict.UNREADABLE)
        facts.append(fact)
    return tuple(facts)


def _threads(reading: Reading) -> Iterator[tuple[str, ThreadReading]]:
    for process in reading.processes:
        for thread in process.threads:
            yield f"PID {process.pid} thread {thread.tid}", thread


def _per_thread(
    promise: str, want: str, reading: Reading, wrong: Callable[[ThreadReading], str | None]
) -> Fact:
    """The fact that no thread has something `wrong`."""
    found = [
        Finding(f"{where}: {text}") for where, each in _threads(reading) if (text := wrong(each))
    ]
    count = sum(1 for _ in _threads(reading))
    return conclude(promise, want, found, f"{want}, on {count} threads")


def _groups(_policy: Policy, reading: Reading) -> Fact:
    def wrong(thread: ThreadReading) -> str | None:
        return " ".join(map(str, thread.groups)) or None

    return _per_thread("identity.groups", "none", reading, wrong)


def _capabilities(policy: Policy, reading: Reading) -> Fact:
    allowed = capabilities.mask(policy.capabilities)

    def wrong(thread: ThreadReading) -> str | None:
        masks = thread.capabilities
        bad = [
            f"{kind} {capabilities.describe(masks[kind])}"
            for kind in ("inheritable", "permitted", "effective", "bounding")
            if masks[kind] & ~allowed
        ]
        bad += [
            f"{kind} only {capabilities.describe(masks[kind])}"
            for kind in ("permitted", "effective")
            if allowed & ~masks[kind]
        ]
        if masks["ambient"]:
            bad.append(f"ambient {capabilities.describe(masks['ambient'])}")
        return ", ".join(bad) or None

    return _per_thread("capabilities", capabilities.describe(allowed), reading, wrong)


def _no_new_privs(policy: Policy, reading: Reading) -> Fact:
    want = int(policy.no_new_privileges)

    def wrong(thread: ThreadReading) -> str | None:
        value = thread.no_new_privileges
        return None if value == want else str(value)

    return _per_thread("no_new_privs", str(want), reading, wrong)


def _seccomp(_policy: Policy, reading: Reading) -> Fact:
    def wrong(thread: ThreadReading) -> str | None:
        if thread.seccomp_mode == _FILTER_MODE and thread.seccomp_filters >= 1:
            return None
        return f"mode {thread.seccomp_mode}, {thread.seccomp_filters} filters"

    return _per_thread("seccomp", "mode 2, at least 1 filter", reading, wrong)


def _untraced(_policy: Policy, reading: Reading) -> Fact:
    def wrong(thread: ThreadReading) -> str | None:
        return f"traced by PID {thread.tracer_pid}" if thread.tracer_pid else None

    return _per_thread("untraced", "no tracer", reading, wrong)


def _namespace(kind: str) -> Check:
    promise = f"namespace.{kind}"

    def check(policy: Policy, reading: Reading) -> Fact:
        own = reading.host.namespaces.get(kind)
        if own is None or kind not in policy.namespaces:
            why = "not in this kernel" if own is None else "not asked for"
            return Fact(promise, "its own", why, Verdict.NOT_APPLICABLE)
        if isinstance(own, Unreadable):
            return conclude(promise, "its own", [unreadable(f"ours: {own.why}")], "")
        found = []
        seen = set()
        for where, thread in _threads(reading):
            have = thread.namespaces.get(kind, Unreadable("not listed"))
            if isinstance(have, Unreadable):
                found.append(unreadable(f"{where}: {have.why}"))
            elif have == own:
                found.append(Finding(f"{where}: the host's"))
            else:
                seen.add(have)
        if len(seen) > 1:
            found.append(Finding(f"{len(seen)} different ones among its threads"))
        inodes = ", ".join(str(each.inode) for each in seen)
        return conclude(promise, "its own", found, f"its own ({kind}:[{inodes}])")

    return check


def _interfaces(_policy: Policy, reading: Reading) -> Fact:
    found = []
    for process in reading.processes:
        have = process.interfaces
        if isinstance(have, Unreadable):
            found.append(unreadable(f"PID {process.pid}: {have.why}"))
        elif have not in {("lo",), ()}:
            found.append(Finding(f"PID {process.pid}: {', '.join(have)}"))
    return conclude("network.interfaces", "lo", found, "lo")


def _cgroup_path(policy: Policy, reading: Reading) -> Fact:
    found = []
    for where, thread in _threads(reading):
        if isinstance(thread.cgroups, Unreadable):
            found.append(unreadable(f"{where}: {thread.cgroups.why}"))
            continue
        for controller in dict.fromkeys((*_LIMITED, *thread.cgroups)):
            path = thread.cgroups.get(controller, "none")
            if path != policy.cgroup:
                found.append(Finding(f"{where}: {path} ({controller})"))
    return conclude("cgroup.path", policy.cgroup, found, policy.cgroup)


def _members(_policy: Policy, reading: Reading) -> Fact:
    want = "the VMM alone"
    if isinstance(reading.members, Unreadable):
        return conclude("cgroup.members", want, [unreadable(reading.members.why)], "")
    foreign = sorted(reading.members - {reading.pid})
    found = [Finding(f"also PID {pid}" if pid else "also one we cannot see") for pid in foreign]
    if reading.pid not in reading.members:
        found.append(Finding(f"without PID {reading.pid}"))
    return conclude("cgroup.members", want, found, f"PID {reading.pid} alone")


def _mounts(policy: Policy, reading: Reading) -> Fact:
    found = [*noting.lost(reading)]
    noted = noting.of_start(reading)
    places = noted.places if noted else frozenset[mounts.Place]()
    for process in reading.processes:
        if isinstance(process.mounts, Unreadable):
            found.append(unreadable(f"PID {process.pid}: {process.mounts.why}"))
        else:
            found += mounts.compare(process.mounts, policy, reading.host, places)
    want = f"{len(policy.binds)} declared, and the runtime's fixed set"
    return conclude("mounts.declared", want, found, want)


def _propagation(_policy: Policy, reading: Reading) -> Fact:
    found: list[Finding] = []
    for process in reading.processes:
        if isinstance(process.mounts, Unreadable):
            found.append(unreadable(f"PID {process.pid}: {process.mounts.why}"))
            continue
        found += [
            Finding(f"{each.target} is {' '.join(each.propagation)}")
            for each in process.mounts
            if each.propagation
        ]
    return conclude("mounts.private", "all private", found, "all private")


def _files(policy: Policy, reading: Reading) -> Fact:
    found = [*noting.lost(reading)]
    count = 0
    for process in reading.processes:
        if isinstance(process.files, Unreadable):
            found.append(unreadable(f"PID {process.pid}: {process.files.why}"))
        else:
            count += len(process.files)
            found += _foreign_files(process, reading)
    want = "only " + ", ".join(policy.open_files) + " of the host"
    return conclude("files.open", want, found, f"{want}, among {count}")


def _foreign_files(process: ProcessReading, reading: Reading) -> Iterator[Finding]:
    if isinstance(process.files, Unreadable):
        return
    if isinstance(process.mounts, Unreadable):
        yield unreadable(f"PID {process.pid}: {process.mounts.why}")
        return
    inside = {each.mount_id for each in process.mounts} | reading.host.kernel_mount_ids
    noted = noting.of_start(reading)
    given = reading.host.open_files | (noted.open_files if noted else frozenset())
    for file in process.files:
        if file.mount_id in inside:
            continue
        if file.inode is None:
            yield unreadable(f"fd {file.fd} is of the host, and this kernel hides its inode")
        elif (file.mount_id, file.inode) not in given:
            yield Finding(f"fd {file.fd} is a file of the host (inode {file.inode})")


_CHECKS: dict[str, Check] = {
    "identity.uid": identities.uid,
    "identity.gid": identities.gid,
    "identity.groups": _groups,
    "identity.uid_map": identities.uid_map,
    "identity.gid_map": identities.gid_map,
    "capabilities": _capabilities,
    "no_new_privs": _no_new_privs,
    "seccomp": _seccomp,
    "seccomp.filter": noting.programs,
    "label": noting.label,
    "untraced": _untraced,
    "program": places.program,
    "environment": places.environment,
    "root": places.root,
    "terminal": places.terminal,
    "namespace.user": _namespace("user"),
    "namespace.mnt": _namespace("mnt"),
    "namespace.pid": _namespace("pid"),
    "namespace.ipc": _namespace("ipc"),
    "namespace.uts": _namespace("uts"),
    "namespace.net": _namespace("net"),
    "namespace.cgroup": _namespace("cgroup"),
    "apart.namespaces": apart.namespaces,
    "apart.ids": apart.ids,
    "network.interfaces": _interfaces,
    "cgroup.path": _cgroup_path,
    "cgroup.members": _members,
    "limit.pids": limits.pids,
    "limit.memory": limits.memory,
    "limit.swap": limits.swap,
    "limit.devices": limits.devices,
    "limit.core": limits.core,
    "limit.rlimits": limits.rlimits,
    "oom_score": limits.oom_score,
    "mounts.declared": _mounts,
    "mounts.masked": places.masked,
    "mounts.private": _propagation,
    "files.open": _files,
    "files.kinds": places.kinds,
    "files.mapped": places.mapped,
}
