"""Our own side of a comparison: our namespaces, and where the paths of a policy lie here."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import stat
from typing import TYPE_CHECKING

from reconciler.confinement.policy import RUNTIME_DEVICES
from reconciler.confinement.reading import HostReading, MountSource, NamespaceId, Unreadable
from reconciler.linux import identity, places, procfs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.confinement.policy import Policy
    from reconciler.linux.procfs import MountEntry

# The links in /proc/PID/ns that are compared.
_MOST_KNOWN = 10_000
KINDS = ("user", "mnt", "pid", "ipc", "uts", "net", "cgroup")


def read_host(policy: Policy) -> HostReading:
    """Look up everything of ours that a reading of `policy`'s VMM is compared with.

    Raises OSError when /proc/self cannot be read; a path of the policy that cannot be looked up
    is an Unreadable in the answer.
    """
    mountinfo = identity.read_at(-1, "/proc/self/mountinfo")
    paths = [*RUNTIME_DEVICES, *policy.devices, *(each.source for each in policy.binds)]
    maybe = (*policy.masked_paths, *policy.read_only_paths)
    return HostReading(
        namespaces=_namespaces(),
        sources={path: _source_now(path, mountinfo) for path in paths},
        present=frozenset(path for path in maybe if os.path.lexists(path)),
        kernel_mount_ids=_kernel_mount_ids(),
        open_files=frozenset(_open_files(policy.open_files)),
        machine=os.uname().machine,
        oom_score_adj=int(identity.read_at(-1, "/proc/self/oom_score_adj")),
        memory_device=_own_device(_memory),
        kernel_device=_own_device(_event),
        device_numbers=frozenset(_device_numbers((*RUNTIME_DEVICES, *policy.devices))),
        is_root=os.geteuid() == 0,
    )


def _namespaces() -> dict[str, NamespaceId | Unreadable]:
    # Never /proc/1/ns: it may not be readable, and then everything would differ from it.
    found: dict[str, NamespaceId | Unreadable] = {}
    for kind in KINDS:
        try:
            link = os.stat(f"/proc/self/ns/{kind}")
        except FileNotFoundError:
            continue  # this kernel has no such namespace
        except OSError as error:
            found[kind] = Unreadable(str(error))
        else:
            found[kind] = NamespaceId(link.st_dev, link.st_ino)
    return found


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


_known: dict[str, tuple[int, int, bytes, MountSource]] = {}
"""By path: device and inode that it led to, our mounts then, and where that was."""


def _source_now(path: str, mountinfo: bytes) -> MountSource | Unreadable:
    """`_source`, asked again only when the path leads elsewhere or our mounts have changed."""
    try:
        found = os.stat(path)
    except OSError as error:
        return Unreadable(f"{path}: {error.strerror}")
    before = _known.get(path)
    if before and before[:3] == (found.st_dev, found.st_ino, mountinfo):
        return before[3]
    source = _source(path, _by_id(mountinfo))
    if isinstance(source, MountSource):
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[path] = found.st_dev, found.st_ino, mountinfo, source
    return source


@functools.lru_cache(maxsize=4)
def _by_id(mountinfo: bytes) -> dict[int, MountEntry]:
    return {each.mount_id: each for each in procfs.parse_mountinfo(mountinfo)}


def _source(path: str, mounts: dict[int, MountEntry]) -> MountSource | Unreadable:
    """Where `path` lies, as mountinfo will show it once it is bound somewhere.

    stat(2) would not do: on btrfs and overlay its device is not the one of mountinfo.
    """
    try:
        with _opened(path) as fd:
            mount = mounts.get(places.fdinfo(fd).mount_id)
            resolved = os.readlink(f"/proc/self/fd/{fd}")
    except OSError as error:
        return Unreadable(f"{path}: {error.strerror}")
    if mount is None:
        return Unreadable(f"{path}: on a mount that we do not see")
    below = os.path.relpath(resolved, mount.target)
    return MountSource(mount.device, os.path.normpath(os.path.join(mount.root, below)))


@functools.cache
def _kernel_mount_ids() -> frozenset[int]:
    """The mounts inside the kernel that pipes, sockets, eventfds and memfds are on.

    They are in no mountinfo, and the same for all, so a descriptor of ours of each kind tells them.
    """
    with contextlib.ExitStack() as stack:
        fds = [*os.pipe2(os.O_CLOEXEC)]
        fds.append(os.eventfd(0, os.EFD_CLOEXEC))
        fds.append(os.memfd_create("box-mount-id", os.MFD_CLOEXEC))
        for fd in fds:
            stack.callback(os.close, fd)
        pair = socket.socketpair()
        for end in pair:
            stack.enter_context(end)
            fds.append(end.fileno())
        return frozenset(places.fdinfo(fd).mount_id for fd in fds)


def _memory() -> int:
    return os.memfd_create("box-device", os.MFD_CLOEXEC)


def _event() -> int:
    return os.eventfd(0, os.EFD_CLOEXEC)


@functools.cache
def _own_device(opened: Callable[[], int]) -> str:
    """The device that a file which the kernel makes is on, as /proc/PID/maps writes it."""
    fd = opened()
    try:
        device = os.fstat(fd).st_dev
    finally:
        os.close(fd)
    return f"{os.major(device):02x}:{os.minor(device):02x}"


def _device_numbers(paths: tuple[str, ...]) -> Iterator[str]:
    for path in paths:
        # One that cannot be found is not in the answer, so a line for it will be a finding.
        with contextlib.suppress(OSError):
            found = os.stat(path)
            kind = "b" if stat.S_ISBLK(found.st_mode) else "c"
            yield f"{kind} {os.major(found.st_rdev)}:{os.minor(found.st_rdev)}"


def _open_files(paths: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    for path in paths:
        # One that cannot be found is not in the answer, so a descriptor of it will be a finding.
        with contextlib.suppress(OSError), _opened(path) as fd:
            info = places.fdinfo(fd)
            if info.inode is not None:
                yield info.mount_id, info.inode
