"""Control groups of all three layouts: version 1, version 2, and hybrid (both).

A cgroup is named by its path below every hierarchy's root ("/box-1000/vm"); the same path is used
in each. Version 1 has one hierarchy for some controllers each, version 2 one for all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from reconciler.errors import Busy
from reconciler.linux import identity, procfs
from reconciler.linux.proc_stat import ParseError

if TYPE_CHECKING:
    from collections.abc import Iterable

# "No limit" of version 1: LONG_MAX rounded down to pages (mm/page_counter.c), whatever their size.
_V1_UNLIMITED = (1 << 63) - (1 << 20)
# ENODEV: removed while open. EOPNOTSUPP: a threaded cgroup, whose processes its parent lists.
_GONE_OR_THREADED = frozenset({errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP})
_POLL_SECONDS = 0.01
_LINKS_OF_A_LEAF = 2

V1_FREEZER = "freezer.state"
"""The file of version 1 that freezes a cgroup and all below it."""


@dataclass(frozen=True)
class Hierarchy:
    """One mounted hierarchy. `root` is the cgroup that its mount shows, "/" outside containers."""

    version: Literal[1, 2]
    controllers: frozenset[str]
    mount: str
    root: str

    def directory(self, path: str) -> Path:
        """Where the cgroup `path` of this hierarchy lies, whether or not it exists."""
        return _directory(self.mount, self.root, path)


@lru_cache(maxsize=4096)
def _directory(mount: str, root: str, path: str) -> Path:
    below = os.path.relpath(path, root)
    if below.startswith(".."):
        raise FileNotFoundError(f"the cgroup {path} is outside of what {mount} shows")
    return Path(mount) / below


@dataclass(frozen=True)
class Layout:
    """All hierarchies that we see."""

    hierarchies: tuple[Hierarchy, ...]

    @property
    def kind(self) -> Literal["none", "v1", "v2", "hybrid"]:
        """Hybrid is version 1 with a version 2 mount beside; crun refuses that."""
        versions = {each.version for each in self.hierarchies}
        if versions == {1, 2}:
            return "hybrid"
        return "none" if not versions else "v1" if 1 in versions else "v2"

    def of_controller(self, controller: str) -> Hierarchy | None:
        """The hierarchy with this controller, None when there is none."""
        for each in self.hierarchies:
            if controller in each.controllers:
                return each
        return None

    def directories(self, path: str) -> tuple[Path, ...]:
        """Where the cgroup `path` lies in each hierarchy, existing or not."""
        return tuple(each.directory(path) for each in self.hierarchies)

    def paths_of(self, cgroup: bytes) -> dict[Hierarchy, str]:
        """The cgroup of a process in each hierarchy, from its /proc/PID/cgroup."""
        return dict(_paths(self, cgroup))


@lru_cache(maxsize=256)
def _paths(layout: Layout, cgroup: bytes) -> dict[Hierarchy, str]:
    return {
        each: entry.path
        for entry in procfs.parse_cgroup(cgroup)
        for each in layout.hierarchies
        if _belongs(entry, each)
    }


def _belongs(entry: procfs.CgroupEntry, hierarchy: Hierarchy) -> bool:
    if hierarchy.version == 2:
        return entry.hierarchy == 0 and not entry.controllers
    return bool(entry.controllers) and hierarchy.controllers == set(entry.controllers)


@dataclass(frozen=True)
class Limits:
    """Limits in force: the least over a cgroup and its ancestors; None is no limit.

    `memory_and_swap_bytes` is what memory and swap may take together. `hangs_when_full` tells that
    version 1 would let nobody be ended there (cgroup-v1/memory.rst of the kernel's documentation).
    """

    pids: int | None
    memory_bytes: int | None
    memory_and_swap_bytes: int | None
    hangs_when_full: bool


def detect(mountinfo: bytes | None = None) -> Layout:
    """The hierarchies of `mountinfo`, by default our own. Raises OSError, ParseError."""
    data = _read("/proc/self/mountinfo") if mountinfo is None else mountinfo
    # Mounts stay as they are, mostly; what version 2 offers is asked each time.
    return _layout(data, tuple(_v2_controllers(each) for each in _v2_mounts(data)))


@lru_cache(maxsize=16)
def _v2_mounts(mountinfo: bytes) -> tuple[str, ...]:
    entries = procfs.parse_mountinfo(mountinfo)
    return tuple(each.target for each in entries if each.fstype == "cgroup2")


@lru_cache(maxsize=16)
def _layout(mountinfo: bytes, v2_controllers: tuple[frozenset[str], ...]) -> Layout:
    """The layout, with the controllers of version 2's mounts in their order."""
    found: dict[tuple[int, frozenset[str]], Hierarchy] = {}
    offered = iter(v2_controllers)
    for entry in procfs.parse_mountinfo(mountinfo):
        if entry.fstype == "cgroup2":
            hierarchy = Hierarchy(2, next(offered), entry.target, entry.root)
        elif entry.fstype == "cgroup":
            hierarchy = Hierarchy(1, _v1_controllers(entry), entry.target, entry.root)
        else:
            continue
        # The same hierarchy may be mounted twice; the widest view of it serves best.
        key = hierarchy.version, hierarchy.controllers
        if key not in found or len(hierarchy.root) < len(found[key].root):
            found[key] = hierarchy
    return Layout(tuple(found.values()))


def _v1_controllers(entry: procfs.MountEntry) -> frozenset[str]:
    words = frozenset(entry.super_options) - {"rw", "ro", "xattr", "clone_children"}
    return frozenset(word for word in words if not word.startswith("release_agent="))


def _v2_controllers(mount: str) -> frozenset[str]:
    try:
        return frozenset(_read(f"{mount}/cgroup.controllers").decode().split())
    except FileNotFoundError:
        return frozenset()


def read_limits(layout: Layout, cgroup: bytes) -> Limits:
    """The limits in force on a process, from its /proc/PID/cgroup.

    A controller that is mounted nowhere limits nothing. Raises OSError when a file of a limit
    cannot be read, ParseError when it holds something else.
    """
    paths = layout.paths_of(cgroup)
    pids = _least(_upwards(layout, paths, "pids"), "pids.max")
    levels = _upwards(layout, paths, "memory")
    memory = layout.of_controller("memory")
    if memory is None or memory.version == 2:
        ram = _least(levels, "memory.max")
        swap = _least(levels, "memory.swap.max")
        both = None if ram is None or swap is None else ram + swap
        return Limits(pids, ram, both, hangs_when_full=False)
    ram = _least(levels, "memory.limit_in_bytes")
    both = _least(levels, "memory.memsw.limit_in_bytes")
    return Limits(pids, ram, both, any(map(_hangs, levels)))


def read_devices(layout: Layout, cgroup: bytes) -> frozenset[str] | None:
    """The devices that version 1 lets a process open, from its /proc/PID/cgroup; None without it.

    Lines of devices.list (devices.rst of cgroup-v1 in the kernel's documentation); no cgroup has
    more than the one above it. Version 2 keeps them in a program, which no file shows. Raises
    OSError.
    """
    hierarchy = layout.of_controller("devices")
    if hierarchy is None:
        return None
    path = layout.paths_of(cgroup).get(hierarchy)
    if path is None:
        raise FileNotFoundError("the process has no cgroup with devices")
    text = _read(f"{hierarchy.directory(path)}/devices.list").decode()
    return frozenset(line.strip() for line in text.splitlines())


def _upwards(layout: Layout, paths: dict[Hierarchy, str], controller: str) -> list[str]:
    """The directories of a cgroup and of those above it, but the root, which limits nothing."""
    hierarchy = layout.of_controller(controller)
    if hierarchy is None:
        return []
    if hierarchy not in paths:
        raise FileNotFoundError(f"the process has no cgroup with {controller}")
    directory = os.fspath(hierarchy.directory(paths[hierarchy]))
    # The cgroup itself must exist: a missing one would read as one without limits.
    os.stat(directory)
    levels = []
    while directory not in {hierarchy.mount, "/"}:
        levels.append(directory)
        directory = os.path.dirname(directory)
    return levels


def _least(levels: list[str], file: str) -> int | None:
    # A version 2 cgroup lacks the file where its parent does not enable the controller.
    values = [_limit(f"{directory}/{file}") for directory in levels]
    return min((each for each in values if each is not None), default=None)


def _hangs(directory: str) -> bool:
    try:
        lines = _read(f"{directory}/memory.oom_control").splitlines()
    except FileNotFoundError:
        return False
    return b"oom_kill_disable 1" in lines


def _read(path: str) -> bytes:
    return identity.read_at(-1, path)


def _limit(path: str) -> int | None:
    try:
        text = _read(path).strip()
    except FileNotFoundError:
        return None
    if text == b"max":
        return None
    if not text.isdigit():
        raise ParseError(f"{path} is not a limit", details=repr(text[:80]))
    value = int(text)
    return None if value >= _V1_UNLIMITED else value


def list_procs(directory: Path) -> frozenset[int]:
    """The PIDs in the cgroup at `directory` and below, as our pid namespace numbers them.

    0 stands for processes that our pid namespace does not show. Of version 1, one is in all cgroups
    that a thread of its is in.
    """
    return _listed(directory, "cgroup.procs")


def list_tasks(directory: Path) -> frozenset[int]:
    """The same of threads, in version 1, which has a cgroup for each."""
    return _listed(directory, "tasks")


def _listed(directory: Path, file: str) -> frozenset[int]:
    found: set[int] = set()
    for parent in (directory, *_below(directory)):
        try:
            found.update(int(word) for word in _read(f"{parent}/{file}").split())
        except OSError as error:
            if error.errno not in _GONE_OR_THREADED:
                raise
    return frozenset(found)


def _below(directory: Path) -> list[Path]:
    """All cgroups below one, parents first."""
    with contextlib.suppress(FileNotFoundError):
        # The kernel counts those right below as links, besides its own two (fs/kernfs/inode.c).
        if os.stat(directory).st_nlink == _LINKS_OF_A_LEAF:
            return []
    return [
        Path(parent) / child for parent, children, _ in os.walk(directory) for child in children
    ]


def kill_all(directories: Iterable[Path], *, timeout_seconds: float = 10.0) -> None:
    """Kill every process in these cgroups and below, frozen or not, and wait until none is left.

    Cgroups that do not exist hold nobody. Raises Busy when processes are left after the timeout.
    """
    deadline = time.monotonic() + timeout_seconds
    wanted = tuple(directories)
    while left := frozenset[int]().union(*(list_procs(each) for each in wanted)):
        for directory in wanted:
            _kill(directory)
        # Only now: what was frozen has its SIGKILL, and comes to nothing else any more.
        for directory in wanted:
            _release(directory)
        if time.monotonic() >= deadline:
            raise Busy(
                "Processes of a cgroup do not end.",
                details=f"{wanted[0]}: PIDs {', '.join(map(str, sorted(left)))}",
            )
        time.sleep(_POLL_SECONDS)


def _kill(directory: Path) -> None:
    try:
        # Version 2, Linux 5.14: the kernel kills them all at once, forks included.
        write_file(directory / "cgroup.kill", b"1")
    except (FileNotFoundError, PermissionError):
        for pid in list_procs(directory):
            signal_member(pid, directory, signal.SIGKILL)
    except OSError as error:
        if error.errno not in _GONE_OR_THREADED:
            raise


def _release(directory: Path) -> None:
    """Thaw what version 1 has frozen: a process that was killed there ends only then.

    That is what Linux 6.18 still does. Under version 2 a frozen process dies at once.
    """
    if (directory / V1_FREEZER).exists():
        for each in (directory, *_below(directory)):
            with contextlib.suppress(FileNotFoundError):
                write_file(each / V1_FREEZER, b"THAWED")


def write_file(path: Path, data: bytes) -> None:
    """Write to a file of a cgroup, which is never made by that. Raises OSError."""
    with open(os.open(path, os.O_WRONLY | os.O_CLOEXEC), "wb", buffering=0) as file:
        file.write(data)


def signal_member(pid: int, directory: Path, signo: int) -> None:
    """Send a signal to a process that is in the cgroup at `directory` or below, to no other one.

    One that is gone, or is somewhere else by now, gets none. Raises OSError when it is refused.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        # The PID may have been reused since the listing: look again, now that we hold a pidfd.
        if pid in list_procs(directory):
            signal.pidfd_send_signal(pidfd, signo)
    except ProcessLookupError:
        return
    finally:
        os.close(pidfd)


def remove(directories: Iterable[Path]) -> None:
    """Remove these cgroups and those below; what does not exist is removed already.

    Raises OSError (EBUSY) while a process is in one.
    """
    for directory in directories:
        for each in (*reversed(_below(directory)), directory):
            with contextlib.suppress(FileNotFoundError):
                each.rmdir()
