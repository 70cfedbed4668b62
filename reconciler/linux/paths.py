"""What a path of the host leads to: opened once, and from then on asked by its descriptor."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from reconciler.errors import Refused
from reconciler.linux import location
from reconciler.linux.location import Identity, Location
from reconciler.linux.procfs import MountEntry

_OBJECT = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class LinkOnPath(Refused):
    """A component of a path is a symbolic link: `path` is it, from the root."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path!a} is a symbolic link.")
        self.path = path


class Unreachable(Refused):
    """An object was opened, but no path of this process's mounts leads to it, or not any more."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An object held by an O_PATH `fd`, which the holder closes.

    `mode` is st_mode; `mount` is what it was reached through, `inner_mounts` are on or below it.
    """

    fd: int
    mode: int
    identity: Identity
    location: Location
    mount: MountEntry
    inner_mounts: tuple[MountEntry, ...]


def open_unlinked(path: str) -> Opened:
    """Open what lies at an absolute `path`, component by component, passing no symbolic link.

    Raises LinkOnPath, Unreachable, Refused for a `..`, and OSError with the failing component.
    """
    parent, fd = _descend(path)
    try:
        return _look(parent, fd)
    except BaseException:
        os.close(fd)
        raise
    finally:
        os.close(parent)


def open_following(path: str) -> Opened:
    """Open what an absolute `path` leads to, its links followed once, by the kernel.

    Raises Unreachable and OSError.
    """
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        key = _key(fd)
        # A link of /proc may lead out of our tree. What counts is the name that the object has in
        # the tree, and that this name still leads to it, with no link on the way.
        found = open_unlinked(os.readlink(f"/proc/self/fd/{fd}"))
        if (found.identity, found.mount.mount_id) == key:
            return found
        os.close(found.fd)
    except (FileNotFoundError, NotADirectoryError, LinkOnPath) as error:
        raise _unreachable(path) from error
    finally:
        os.close(fd)
    raise _unreachable(path)


def _unreachable(path: str) -> Unreachable:
    return Unreachable(f"What {path!a} leads to has no path among our mounts, or was just moved.")


def _descend(path: str) -> tuple[int, int]:
    """The descriptors of the directory that the object was found in, and of the object."""
    names = [name for name in path.split("/") if name not in {"", "."}]
    if ".." in names:
        raise Refused(f"{path!a} holds `..`.")
    parent = os.open("/", _DIRECTORY)
    fd = os.dup(parent)
    so_far = ""
    try:
        for name in names:
            so_far += f"/{name}"
            below = _step(fd, name, so_far)
            os.close(parent)
            parent, fd = fd, below
    except BaseException:
        os.close(parent)
        os.close(fd)
        raise
    return parent, fd


def _step(directory: int, name: str, path: str) -> int:
    try:
        try:
            # O_DIRECTORY mounts what is mounted on demand; O_PATH alone would hold the empty place.
            return os.open(name, _DIRECTORY, dir_fd=directory)
        except NotADirectoryError:
            fd = os.open(name, _OBJECT, dir_fd=directory)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    if stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise LinkOnPath(path)
    return fd


def _look(parent: int, fd: int) -> Opened:
    path = os.readlink(f"/proc/self/fd/{fd}")
    facts = os.fstat(fd)
    mounts = location.read_mounts()
    mount = next((each for each in mounts if each.mount_id == location.mount_id(fd)), None)
    # Our mounts are not all shown in a chroot, and one may go away while it is looked at.
    if mount is None or not location.is_within(path, mount.target):
        raise _unreachable(path)
    above = ancestry(fd)[1:] if stat.S_ISDIR(facts.st_mode) else ancestry(parent)
    inner = location.mounted_in(path, mounts)
    identity = location.identity_of(facts)
    where = Location(
        path,
        identity,
        frozenset(above),
        frozenset({location.place_in(mount, path)}),
        location.inner_places(inner),
    )
    return Opened(fd, facts.st_mode, identity, where, mount, inner)


def ancestry(directory: int) -> tuple[Identity, ...]:
    """An open directory and all that it lies in, up to the root. Raises OSError."""
    found = []
    fd, last = os.dup(directory), None
    try:
        # With the mount: a directory mounted on its own child has the same identity as its parent.
        while (key := _key(fd)) != last:
            found.append(key[0])
            above = os.open("..", _DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd, last = above, key
    finally:
        os.close(fd)
    return tuple(found)


def _key(fd: int) -> tuple[Identity, int]:
    return location.identity_of(os.fstat(fd)), location.mount_id(fd)
