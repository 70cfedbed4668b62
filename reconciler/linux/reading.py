"""Read a running VMM from /proc and its cgroup, so that no other process can be read by mistake.

The process is held by a pidfd and its /proc directory, everything is read through that, and whether
it is still the same is asked again at the end. Threads and members of the cgroup are listed until
two listings agree. What cannot be read is said so; nothing is guessed.
"""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from reconciler.confinement.policy import IdRange
from reconciler.confinement.reading import (
    CgroupLimits,
    FileReading,
    MountReading,
    NamespaceId,
    ProcessReading,
    Reading,
    ThreadReading,
    Unreadable,
    Withheld,
)
from reconciler.linux import cgroups, host_side, identity, places, proc_stat, procfs, tracing
from reconciler.linux.proc_stat import ParseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from reconciler.confinement.policy import Policy
    from reconciler.confinement.reading import Neighbour, Noted
    from reconciler.linux.cgroups import Layout
    from reconciler.linux.identity import Process, ProcessIdentity

T = TypeVar("T")

_LISTINGS = 20
_TRACER_LOOKS = 5
_TRACER_SECONDS = 0.002
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NAMESPACE_LINKS = {kind: f"ns/{kind}" for kind in host_side.KINDS}
_CONTROLLERS = ("memory", "pids")
_RLIMITS = {
    "Max core file size": "RLIMIT_CORE",
    "Max file size": "RLIMIT_FSIZE",
    "Max locked memory": "RLIMIT_MEMLOCK",
    "Max open files": "RLIMIT_NOFILE",
    "Max processes": "RLIMIT_NPROC",
}


class Moved(Exception):
    """What was being read ended or changed on the way."""


@dataclass(frozen=True)
class _How:
    """How all processes of one reading are read."""

    layout: Layout
    policy: Policy
    programs: bool


def read_process(
    who: ProcessIdentity,
    policy: Policy,
    layout: Layout | None = None,
    *,
    noted: Noted | None = None,
    neighbours: Mapping[str, Neighbour] | None = None,
    programs: bool = True,
) -> Reading:
    """Read the VMM `who` and all processes of its cgroup.

    `policy` says which cgroup to list and which paths of ours to look up, `layout` where cgroups
    are mounted, by default as we see them. `noted` and `neighbours` become parts of the reading.
    With `programs` every thread stands still for a moment while its filters are read; without, the
    number of filters is read, which grows with every change: no thread can take one off again.
    A VMM that is gone, or changes faster than it can be read, gives a void reading; so does a /proc
    that cannot be understood. Raises HiddenProcess under hidepid, OSError when our own side cannot
    be read.
    """
    host = host_side.read_host(policy)
    around = dict(neighbours or {})
    how = _How(layout or cgroups.detect(), policy, programs)
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
    limits = _part(lambda: _weakest(how.layout, groups))
    # Last: after an exec or an exit, all of the above stands for nothing.
    if not process.unchanged():
        raise Moved("the process ended or became another program while it was read")
    return main, others, members, limits


def _part(read: Callable[[], T]) -> T | Unreadable:
    """What `read` gives; a process that has ended makes the whole reading void instead."""
    try:
        return read()
    except ProcessLookupError:
        raise
    except OSError as error:
        return Unreadable(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except ParseError as error:
        return Unreadable(str(error))


def _process(process: Process, how: _How) -> tuple[ProcessReading, frozenset[bytes]]:
    """One process, and the different contents of its threads' cgroup files."""
    threads, groups = _threads(process.directory, how.layout)
    if how.programs:
        threads = _with_programs(process.directory, threads)
    held = process.directory
    reading = ProcessReading(
        pid=process.identity.pid,
        tty=_part(lambda: proc_stat.parse_stat(process.read("stat")).tty),
        threads=threads,
        uid_map=_part(lambda: _id_map(process, "uid_map")),
        gid_map=_part(lambda: _id_map(process, "gid_map")),
        interfaces=_part(lambda: procfs.parse_net_dev(process.read("net/dev"))),
        rlimits=_part(lambda: _rlimits(process)),
        oom_score_adj=_part(lambda: _integer(process, "oom_score_adj")),
        mounts=_part(lambda: _mounts(process)),
        files=_part(lambda: _files(process)),
        root=_part(lambda: places.read_place(held, "root")),
        directory=_part(lambda: places.read_place(held, "cwd")),
        program=_part(lambda: places.read_place(held, "exe")),
        masked=_part(lambda: places.read_masks(held, how.policy.masked_paths)),
    )
    return reading, groups


def _with_programs(directory: int, threads: tuple[ThreadReading, ...]) -> tuple[ThreadReading, ...]:
    filtered = [each.tid for each in threads if each.seccomp_filters and not each.tracer_pid]
    found = tracing.read_programs(directory, filtered) if filtered else {}
    # Who traces a thread already is a finding of its own.
    traced = Withheld("a debugger is attached")
    return tuple(
        replace(each, programs=traced if each.tracer_pid else found.get(each.tid))
        for each in threads
    )


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


def _files(process: Process) -> tuple[FileReading, ...]:
    # fd/ itself may be listed only with the process's own UID; fdinfo/ by whoever may trace it.
    found = []
    for name in _names(process.directory, "fdinfo"):
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


def _threads(directory: int, layout: Layout) -> tuple[tuple[ThreadReading, ...], frozenset[bytes]]:
    groups: dict[bytes, dict[str, str] | Unreadable] = {}
    for _ in range(_LISTINGS):
        before = _names(directory, "task")
        try:
            threads = [_thread(directory, int(name), layout, groups) for name in before]
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread ended: list again
        if before and before == _names(directory, "task"):
            return tuple(threads), frozenset(groups)
    raise Moved("its threads come and go faster than they can be read, or it is gone")


def _thread(
    process: int, tid: int, layout: Layout, groups: dict[bytes, dict[str, str] | Unreadable]
) -> ThreadReading:
    """One thread; the paths of its cgroup file are looked up in `groups`, or added there."""
    fd = os.open(f"task/{tid}", _OPEN_DIRECTORY, dir_fd=process)
    try:
        status = _status(fd)
        group = identity.read_at(fd, "cgroup")
        spaces = _namespaces(fd)
        label = _part(lambda: _label(fd))
        root, directory = _part(lambda: _lies(fd, "root")), _part(lambda: _lies(fd, "cwd"))
    finally:
        os.close(fd)
    if group not in groups:
        groups[group] = _part(lambda: _controller_paths(layout, group))
    return ThreadReading(
        tid=tid,
        uids=status.uids,
        gids=status.gids,
        groups=status.groups,
        capabilities=_capabilities(status),
        no_new_privileges=status.no_new_privileges,
        seccomp_mode=status.seccomp_mode,
        seccomp_filters=status.seccomp_filters,
        tracer_pid=status.tracer_pid,
        namespaces=spaces,
        cgroups=groups[group],
        programs=None,
        label=label,
        root=root,
        directory=directory,
    )


@lru_cache(maxsize=4096)
def _capabilities(status: procfs.Status) -> dict[str, int]:
    return {
        "inheritable": status.cap_inheritable,
        "permitted": status.cap_permitted,
        "effective": status.cap_effective,
        "bounding": status.cap_bounding,
        "ambient": status.cap_ambient,
    }


def _status(thread: int) -> procfs.Status:
    status = procfs.parse_status(identity.read_at(thread, "status"))
    for _ in range(_TRACER_LOOKS):
        if not status.tracer_pid:
            break
        # Another reading of box's own is done with a thread at once; a debugger stays.
        time.sleep(_TRACER_SECONDS)
        status = procfs.parse_status(identity.read_at(thread, "status"))
    return status


def _label(thread: int) -> str | Withheld:
    try:
        return os.fsdecode(identity.read_at(thread, "attr/current").rstrip(b"\0\n"))
    except OSError as error:
        # ENOENT: a kernel without security modules; EINVAL: none that labels processes.
        if error.errno in {errno.EINVAL, errno.ENOENT}:
            return Withheld("no security module of this host labels processes")
        raise


def _lies(thread: int, link: str) -> tuple[int, int]:
    found = os.stat(link, dir_fd=thread)
    return found.st_dev, found.st_ino


def _namespaces(thread: int) -> dict[str, NamespaceId | Unreadable]:
    try:
        return {kind: _namespace(thread, kind) for kind in host_side.KINDS}
    except (PermissionError, FileNotFoundError):
        return {kind: _part(partial(_namespace, thread, kind)) for kind in host_side.KINDS}


def _namespace(thread: int, kind: str) -> NamespaceId:
    found = os.stat(_NAMESPACE_LINKS[kind], dir_fd=thread)
    return _namespace_id(found.st_dev, found.st_ino)


@lru_cache(maxsize=4096)
def _namespace_id(device: int, inode: int) -> NamespaceId:
    return NamespaceId(device, inode)


def _controller_paths(layout: Layout, group: bytes) -> dict[str, str]:
    paths = layout.paths_of(group)
    return {
        controller: path
        for hierarchy, path in paths.items()
        for controller in _CONTROLLERS
        if controller in hierarchy.controllers
    }


def _names(directory: int, name: str) -> tuple[str, ...]:
    """The entries of a directory of /proc, by number. Raises OSError."""
    fd = os.open(name, _OPEN_DIRECTORY, dir_fd=directory)
    try:
        return tuple(sorted(os.listdir(fd), key=int))
    finally:
        os.close(fd)


def _members(pid: int, how: _How) -> tuple[frozenset[int] | Unreadable, tuple[ProcessReading, ...]]:
    """Who is in the sandbox's cgroup, in any hierarchy, and a reading of all but `pid`."""
    layout, cgroup = how.layout, how.policy.cgroup
    for _ in range(_LISTINGS):
        members = _part(lambda: _listed(layout, cgroup))
        if isinstance(members, Unreadable):
            return members, ()
        foreign = sorted(members - {pid, 0})
        others = [_other(each, how) for each in foreign]
        if not foreign or (
            None not in others and members == _part(lambda: _listed(layout, cgroup))
        ):
            return members, tuple(each for each in others if each is not None)
    raise Moved("processes of its cgroup come and go faster than they can be read")


def _listed(layout: Layout, cgroup: str) -> frozenset[int]:
    listings = (cgroups.list_procs(Path(each)) for each in layout.directories(cgroup))
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
    )


def _most(values: Iterable[int | None]) -> int | None:
    known = list(values)
    numbers = [each for each in known if each is not None]
    return max(numbers) if numbers and len(numbers) == len(known) else None
