"""Read a running VMM from /proc and its cgroup, so that no other process can be read by mistake.

The process is held by a pidfd and its /proc directory, everything is read through that, and whether
it is still the same is asked again at the end. Threads and members of the cgroup are listed until
two listings agree. What cannot be read is said so; nothing is guessed.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from reconciler.confinement.policy import IdRange
from reconciler.confinement.reading import (
    CgroupLimits,
    FileReading,
    MappedReading,
    MountReading,
    ProcessReading,
    Reading,
    Unreadable,
)
from reconciler.linux import cgroups, host_side, identity, places, proc_stat, procfs, threads
from reconciler.linux.parts import LISTINGS, Moved, entries, part
from reconciler.linux.proc_stat import ParseError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.confinement.policy import Policy
    from reconciler.confinement.reading import Neighbour, Noted, ThreadReading
    from reconciler.linux.cgroups import Layout
    from reconciler.linux.identity import Process, ProcessIdentity

_RLIMITS = {
    "Max core file size": "RLIMIT_CORE",
    "Max file size": "RLIMIT_FSIZE",
    "Max locked memory": "RLIMIT_MEMLOCK",
    "Max open files": "RLIMIT_NOFILE",
    "Max processes": "RLIMIT_NPROC",
}


@dataclass(frozen=True)
class _How:
    """How all processes of one reading are read."""

    layout: Layout
    policy: Policy
    first: bool


def read_process(
    who: ProcessIdentity,
    policy: Policy,
    layout: Layout | None = None,
    *,
    noted: Noted | Unreadable | None = None,
    neighbours: Mapping[str, Neighbour] | None = None,
) -> Reading:
    """Read the VMM `who` and all processes of its cgroup.

    `policy` says which cgroup to list and which paths of ours to look up, `layout` where cgroups
    are mounted, by default as we see them. `noted` and `neighbours` become parts of the reading.
    At a start (`noted` is None) every thread stands still for a moment while its filters are read.
    Later their number is enough, which grows with every change: no thread can take one off again,
    and a new thread has those of its maker.
    A VMM that is gone, or changes faster than it can be read, gives a void reading; so does a /proc
    that cannot be understood. Raises HiddenProcess under hidepid, OSError when our own side cannot
    be read.
    """
    host = host_side.read_host(policy)
    around = dict(neighbours or {})
    how = _How(layout or cgroups.detect(), policy, noted is None)
    try:
        with identity.open_process(who) as process:
            main, others, members, limits = _read(process, how)
    except (Moved, ProcessLookupError, ParseError) as error:
        nothing = frozenset[int](), Unreadable("void")
        return Reading(who.pid, str(error), (), *nothing, host, noted, around)
    return Reading(who.pid, None, (main, *others), members, limits, host, noted, around)


def _read(
    process: Process | None, how: _How
) -> tuple[
    ProcessReading,
    tuple[ProcessReading, ...],
    frozenset[int] | Unreadable,
    CgroupLimits | Unreadable,
]:
    if process is None:
        raise Moved("the process is gone")
    main, groups = _process(process, how)
    members, others = _members(process.identity.pid, how)
    limits = part(lambda: _weakest(how.layout, groups))
    # Last: after an exec or an exit, all of the above stands for nothing.
    if not process.unchanged():
        raise Moved("the process ended or became another program while it was read")
    return main, others, members, limits


def _process(process: Process, how: _How) -> tuple[ProcessReading, frozenset[bytes]]:
    """One process, and the different contents of its threads' cgroup files."""
    read = _first_threads if how.first else threads.read_threads
    each, groups = read(process.directory, how.layout)
    held = process.directory
    tty, environment = _stat(process)
    mapped = part(lambda: procfs.parse_maps(process.read("maps")))
    reading = ProcessReading(
        pid=process.identity.pid,
        environment_bytes=environment,
        tty=tty,
        threads=each,
        uid_map=part(lambda: _id_map(process, "uid_map")),
        gid_map=part(lambda: _id_map(process, "gid_map")),
        interfaces=part(lambda: procfs.parse_net_dev(process.read("net/dev"))),
        rlimits=part(lambda: _rlimits(process)),
        oom_score_adj=part(lambda: _integer(process, "oom_score_adj")),
        mounts=part(lambda: _mounts(process)),
        files=part(lambda: _files(process)),
        root=part(lambda: places.read_place(held, "root")),
        directory=part(lambda: places.read_place(held, "cwd")),
        program=part(lambda: places.read_place(held, "exe")),
        masked=part(lambda: places.read_masks(held, how.policy.masked_paths)),
        mapped=mapped,
        parts=part(lambda: places.read_inodes(held, _bound(mapped, how.policy))),
    )
    return reading, groups


def _first_threads(
    directory: int, layout: Layout
) -> tuple[tuple[ThreadReading, ...], frozenset[bytes]]:
    for _ in range(LISTINGS):
        each, groups = threads.read_threads(directory, layout)
        try:
            return threads.with_programs(directory, each), groups
        except ProcessLookupError:
            continue  # a thread ended: list again
    raise Moved("its threads end faster than their filters can be read, or it is gone")


def _stat(process: Process) -> tuple[int | Unreadable, int | Unreadable]:
    """The controlling terminal, and the length of the environment."""
    data = part(lambda: process.read("stat"))
    if isinstance(data, Unreadable):
        return data, data
    return part(lambda: proc_stat.parse_stat(data).tty), part(lambda: _environment(data))


def _environment(stat: bytes) -> int:
    found = proc_stat.parse_environment(stat)
    if found is None:
        raise PermissionError(errno.EACCES, "not shown to us", "environment")
    return found


def _id_map(process: Process, name: str) -> tuple[IdRange, ...]:
    lines = procfs.parse_id_map(process.read(name))
    return tuple(IdRange(each.inside, each.outside, each.size) for each in lines)


def _rlimits(process: Process) -> dict[str, tuple[int | None, int | None]]:
    limits = procfs.parse_limits(process.read("limits"))
    return {_RLIMITS[k]: (v.soft, v.hard) for k, v in limits.items() if k in _RLIMITS}


def _integer(process: Process, name: str) -> int:
    text = process.read(name).strip()
    if not text.removeprefix(b"-").isdigit():
        raise ParseError(f"/proc/PID/{name} cannot be understood", details=repr(text[:80]))
    return int(text)


def _mounts(process: Process) -> tuple[MountReading, ...]:
    return _mount_readings(process.read("mountinfo"))


@lru_cache(maxsize=128)
def _mount_readings(mountinfo: bytes) -> tuple[MountReading, ...]:
    return tuple(
        MountReading(
            mount_id=each.mount_id,
            device=each.device,
            root=each.root,
            target=each.target,
            options=each.options,
            propagation=each.propagation,
            fstype=each.fstype,
        )
        for each in procfs.parse_mountinfo(mountinfo)
    )


def _bound(mapped: tuple[MappedReading, ...] | Unreadable, policy: Policy) -> frozenset[str]:
    """The bind targets that something mapped has the name of."""
    if isinstance(mapped, Unreadable):
        return frozenset()
    names = {each.name.removesuffix(" (deleted)") for each in mapped}
    return frozenset(names & {each.target for each in policy.binds})


def _files(process: Process) -> tuple[FileReading, ...]:
    # fd/ itself may be listed only with the process's own UID; fdinfo/ by whoever may trace it.
    found = []
    for name in entries(process.directory, "fdinfo"):
        try:
            info = procfs.parse_fdinfo(process.read(f"fdinfo/{name}"))
        except FileNotFoundError:
            continue  # closed since the listing
        kind = info.kind or _kind(process.directory, name)
        found.append(FileReading(int(name), info.mount_id, info.inode, kind))
    return tuple(found)


def _kind(directory: int, name: str) -> str:
    """What the link of a descriptor calls it, where we may see that and it is no file."""
    try:
        text = os.readlink(f"fd/{name}", dir_fd=directory)
    except (FileNotFoundError, PermissionError):
        return ""
    prefix, _, kind = text.partition("anon_inode:")
    return kind.strip("[]") if kind and not prefix else ""


def _members(pid: int, how: _How) -> tuple[frozenset[int] | Unreadable, tuple[ProcessReading, ...]]:
    """Who is in the sandbox's cgroup, in any hierarchy, and a reading of all but `pid`."""
    layout, cgroup = how.layout, how.policy.cgroup
    for _ in range(LISTINGS):
        members = part(lambda: _listed(layout, cgroup))
        if isinstance(members, Unreadable):
            return members, ()
        foreign = sorted(members - {pid, 0})
        others = [_other(each, how) for each in foreign]
        if not foreign or (None not in others and members == part(lambda: _listed(layout, cgroup))):
            return members, tuple(each for each in others if each is not None)
    raise Moved("processes of its cgroup come and go faster than they can be read")


def _listed(layout: Layout, cgroup: str) -> frozenset[int]:
    listings = (cgroups.list_procs(each) for each in layout.directories(cgroup))
    return frozenset[int]().union(*listings)


def _other(pid: int, how: _How) -> ProcessReading | None:
    who = identity.identify(pid)
    if who is None:
        return None
    with identity.open_process(who) as process:
        if process is None:
            return None
        try:
            return _process(process, how)[0]
        except (ProcessLookupError, Moved):
            return None


def _weakest(layout: Layout, groups: frozenset[bytes]) -> CgroupLimits:
    limits = [cgroups.read_limits(layout, group) for group in groups]
    return CgroupLimits(
        pids=_most(each.pids for each in limits),
        memory=_most(each.memory_bytes for each in limits),
        memory_and_swap=_most(each.memory_and_swap_bytes for each in limits),
        devices=_devices(layout, groups),
        hangs_when_full=any(each.hangs_when_full for each in limits),
    )


def _devices(layout: Layout, groups: frozenset[bytes]) -> frozenset[str] | None:
    known = [cgroups.read_devices(layout, group) for group in groups]
    found = [each for each in known if each is not None]
    return frozenset[str]().union(*found) if found else None


def _most(values: Iterable[int | None]) -> int | None:
    known = list(values)
    numbers = [each for each in known if each is not None]
    return max(numbers) if numbers and len(numbers) == len(known) else None
