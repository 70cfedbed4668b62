"""Read the threads of a process from /proc: each has IDs, filters and namespaces of its own."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from reconciler.confinement.reading import NamespaceId, ThreadReading, Unreadable, Withheld
from reconciler.linux import host_side, identity, procfs
from reconciler.linux.parts import LISTINGS, OPEN_DIRECTORY, Moved, entries, part

if TYPE_CHECKING:
    from reconciler.linux.cgroups import Layout

_TRACER_LOOKS = 5
_TRACER_SECONDS = 0.002
_NAMESPACE_LINKS = {kind: f"ns/{kind}" for kind in host_side.KINDS}
# Those of version 1 are judged where they are: no controller of version 2 has the names.
_CONTROLLERS = ("memory", "pids", "freezer", "devices")


def read_threads(
    directory: int, layout: Layout
) -> tuple[tuple[ThreadReading, ...], frozenset[bytes]]:
    """All threads of an open /proc/PID, and the different contents of their cgroup files.

    They are listed until two listings agree. Raises Moved.
    """
    groups: dict[bytes, dict[str, str] | Unreadable] = {}
    for _ in range(LISTINGS):
        before = entries(directory, "task")
        try:
            threads = [_thread(directory, int(name), layout, groups) for name in before]
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread ended: list again
        if before and before == entries(directory, "task"):
            return tuple(threads), frozenset(groups)
    raise Moved("its threads come and go faster than they can be read, or it is gone")


def _thread(
    process: int, tid: int, layout: Layout, groups: dict[bytes, dict[str, str] | Unreadable]
) -> ThreadReading:
    """One thread; the paths of its cgroup file are looked up in `groups`, or added there."""
    fd = os.open(f"task/{tid}", OPEN_DIRECTORY, dir_fd=process)
    try:
        status = _status(fd)
        group = identity.read_at(fd, "cgroup")
        spaces = _namespaces(fd)
        label = part(lambda: _label(fd))
        root, directory = part(lambda: _lies(fd, "root")), part(lambda: _lies(fd, "cwd"))
    finally:
        os.close(fd)
    if group not in groups:
        groups[group] = part(lambda: _controller_paths(layout, group))
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
        return {kind: part(partial(_namespace, thread, kind)) for kind in host_side.KINDS}


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


def with_programs(directory: int, threads: tuple[ThreadReading, ...]) -> tuple[ThreadReading, ...]:
    """The same threads with their seccomp filters, for which each stands still for a moment.

    Raises ProcessLookupError when one ends meanwhile.
    """
    # Only a first reading needs it, and ctypes is slow to load.
    from reconciler.linux import tracing

    filtered = [each.tid for each in threads if each.seccomp_filters and not each.tracer_pid]
    found = tracing.read_programs(directory, filtered) if filtered else {}
    # Who traces a thread already is a finding of its own.
    traced = Withheld("a debugger is attached")
    return tuple(
        replace(each, programs=traced if each.tracer_pid else found.get(each.tid))
        for each in threads
    )
