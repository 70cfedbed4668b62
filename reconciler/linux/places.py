"""Where the links of /proc/PID lead, and what a process sees at the paths that hide the host's."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from reconciler.confinement.reading import PlaceReading
from reconciler.linux import identity, procfs

if TYPE_CHECKING:
    from collections.abc import Iterable

_OPEN_PATH = os.O_PATH | os.O_CLOEXEC
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NULL = os.makedev(1, 3)  # Documentation/admin-guide/devices.txt


def read_place(directory: int, link: str) -> PlaceReading:
    """Where `link` of an open /proc/PID leads. Raises OSError, ParseError.

    The kernel goes to the very object, whatever its path means to us. Its text is the path from the
    root of the mount namespace, so that a mere chroot(2) shows.
    """
    text = os.readlink(link, dir_fd=directory)
    fd = os.open(link, _OPEN_PATH, dir_fd=directory)
    try:
        return PlaceReading(text, mount_id(fd))
    finally:
        os.close(fd)


def mount_id(fd: int) -> int:
    """The mount that an open descriptor of ours came through."""
    return fdinfo(fd).mount_id


def fdinfo(fd: int) -> procfs.FdInfo:
    """What the kernel tells of an open descriptor of ours."""
    return procfs.parse_fdinfo(identity.read_at(-1, f"/proc/self/fdinfo/{fd}"))


def read_masks(directory: int, paths: Iterable[str]) -> dict[str, str]:
    """What is at each of the absolute `paths`, seen from the root of an open /proc/PID.

    "null" is the device, "empty" a directory with nothing in it, "absent" nothing; anything else
    is described. Raises OSError.
    """
    root = os.open("root", _OPEN_PATH | os.O_DIRECTORY, dir_fd=directory)
    try:
        return {path: _mask(root, path.lstrip("/")) for path in paths}
    finally:
        os.close(root)


def read_inodes(directory: int, paths: Iterable[str]) -> dict[str, int]:
    """The inode of what is at each of the absolute `paths`, seen from the root of /proc/PID.

    A path where nothing is, is not in the answer. Raises OSError.
    """
    root = os.open("root", _OPEN_PATH | os.O_DIRECTORY, dir_fd=directory)
    found = {}
    try:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                found[path] = os.stat(path.lstrip("/"), dir_fd=root, follow_symlinks=False).st_ino
    finally:
        os.close(root)
    return found


def _mask(root: int, path: str) -> str:
    try:
        found = os.stat(path, dir_fd=root, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            return _directory(root, path)
    except FileNotFoundError:
        return "absent"
    if stat.S_ISCHR(found.st_mode) and found.st_rdev == _NULL:
        return "null"
    return f"something else (mode {found.st_mode:o})"


def _directory(root: int, path: str) -> str:
    fd = os.open(path, _OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=root)
    try:
        count = len(os.listdir(fd))
    finally:
        os.close(fd)
    return f"a directory of {count}" if count else "empty"
