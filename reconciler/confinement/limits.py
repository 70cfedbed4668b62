"""The checks of limits: those of the cgroup, and those of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.confinement.facts import Fact, Finding, Verdict, conclude, unreadable
from reconciler.confinement.reading import Unreadable

if TYPE_CHECKING:
    from reconciler.confinement.policy import Policy, Rlimit
    from reconciler.confinement.reading import Reading


# Terminals and /dev/net/tun, which OCI runtimes allow whatever the spec says (devices.txt has the
# numbers).
_EVERY_CONTAINERS = frozenset({"c 5:0", "c 5:1", "c 5:2", "c 136:*", "c 10:200"})

_HANGS = Finding("who is over it hangs and is not ended (oom_kill_disable of memory.oom_control)")


def pids(policy: Policy, reading: Reading) -> Fact:
    """The pids limit in force."""
    limits = reading.limits
    have = limits if isinstance(limits, Unreadable) else limits.pids
    return _cgroup_limit("limit.pids", policy.pids_limit, have)


def memory(policy: Policy, reading: Reading) -> Fact:
    """The memory limit in force, and that it ends who is over it."""
    limits = reading.limits
    if isinstance(limits, Unreadable):
        return _cgroup_limit("limit.memory", policy.memory_limit_bytes, limits)
    also = (_HANGS,) if limits.hangs_when_full else ()
    return _cgroup_limit("limit.memory", policy.memory_limit_bytes, limits.memory, also)


def swap(policy: Policy, reading: Reading) -> Fact:
    """The limit on memory and swap together: a memory limit alone is none while there is swap."""
    limits = reading.limits
    have = limits if isinstance(limits, Unreadable) else limits.memory_and_swap
    return _cgroup_limit("limit.swap", policy.memory_limit_bytes, have)


def _cgroup_limit(
    promise: str, want: int, have: int | Unreadable | None, also: tuple[Finding, ...] = ()
) -> Fact:
    """At most `want`; less is in order, when an ancestor has less. `also` was found besides."""
    if isinstance(have, Unreadable):
        return conclude(promise, f"{want}", [unreadable(have.why)], "")
    found = [*also]
    if have is None:
        found.append(Finding("no limit"))
    elif have > want:
        found.append(Finding(f"{have}"))
    return conclude(promise, f"{want}", found, f"{have}")


def devices(_policy: Policy, reading: Reading) -> Fact:
    """The device nodes that could be opened if there were any: version 1 of cgroups shows them."""
    want = "the jail's, and those of every container"
    held = reading.limits
    if isinstance(held, Unreadable):
        return conclude("limit.devices", want, [unreadable(held.why)], "")
    if held.devices is None:
        why = "version 2 of cgroups keeps them in a program that no file shows"
        return Fact("limit.devices", want, why, Verdict.NOT_APPLICABLE)
    if not reading.host.is_root:
        why = "only root can hold a cgroup to devices; the jail has no node of another"
        return Fact("limit.devices", want, why, Verdict.NOT_APPLICABLE)
    allowed = _EVERY_CONTAINERS | reading.host.device_numbers
    found = []
    for line in sorted(held.devices):
        device, _, access = line.rpartition(" ")
        # To make a node it takes a capability besides, which no VMM has.
        if device not in allowed and access != "m":
            found.append(Finding(line))
    return conclude("limit.devices", want, found, want)


def core(policy: Policy, reading: Reading) -> Fact:
    """The limit on core files."""
    return _rlimits("limit.core", _wanted(policy, core=True), reading)


def rlimits(policy: Policy, reading: Reading) -> Fact:
    """All other resource limits of the policy."""
    return _rlimits("limit.rlimits", _wanted(policy, core=False), reading)


def _wanted(policy: Policy, *, core: bool) -> tuple[Rlimit, ...]:
    return tuple(each for each in policy.rlimits if (each.name == "RLIMIT_CORE") is core)


def _rlimits(promise: str, wanted: tuple[Rlimit, ...], reading: Reading) -> Fact:
    want = ", ".join(f"{each.name} {each.hard}" for each in wanted)
    found = []
    for process in reading.processes:
        if isinstance(process.rlimits, Unreadable):
            found.append(unreadable(f"PID {process.pid}: {process.rlimits.why}"))
            continue
        for each in wanted:
            soft, hard = process.rlimits.get(each.name, (None, None))
            if hard is None or soft is None or hard > each.hard or soft > each.hard:
                text = f"soft {_show(soft)}, hard {_show(hard)}"
                found.append(Finding(f"PID {process.pid}: {each.name} {text}"))
    return conclude(promise, want, found, want)


def _show(limit: int | None) -> str:
    return "unlimited" if limit is None else str(limit)


def oom_score(policy: Policy, reading: Reading) -> Fact:
    """The score that decides whom the kernel ends first."""
    found = []
    for process in reading.processes:
        have = process.oom_score_adj
        if isinstance(have, Unreadable):
            found.append(unreadable(f"PID {process.pid}: {have.why}"))
        elif have < policy.oom_score_adj:
            found.append(Finding(f"PID {process.pid}: {have}"))
        elif have <= reading.host.oom_score_adj:
            found.append(Finding(f"PID {process.pid}: {have}, box itself has as much"))
    want = f"at least {policy.oom_score_adj}"
    return conclude("oom_score", want, found, want)
