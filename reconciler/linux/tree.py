"""What lies below an open directory, and the sockets among it that somebody listens at."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import NamedTuple

from reconciler.errors import Refused
from reconciler.linux.location import Identity, mount_id

_LISTING = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 128  # directories in one another; two descriptors of each are held
_ACCEPTING = 0x10000  # __SO_ACCEPTCON of linux/net.h, as /proc/net/unix shows it
_UNIX_SOCKET = re.compile(
    rb"^[0-9a-f]+: [0-9A-F]+ [0-9A-F]+ ([0-9A-F]{8}) [0-9A-F]+ [0-9A-F]+ +[0-9]+ (/.*)$",
    re.MULTILINE,
)


class Unsearchable(Refused):
    """Not everything below a directory could be looked at; `reason` is a clause."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"A directory cannot be searched: {reason}.")
        self.reason = reason


class Found(NamedTuple):
    """Something below a directory, with its path from there.

    `identity` is None for a directory: its entry may have another number than it has itself.
    """

    path: str
    identity: Identity | None
    is_socket: bool


@dataclass(slots=True)
class _Search:
    device: int
    mount_id: int
    left: int
    above: list[str] = field(default_factory=list)

    def into(self, parent: int, name: str) -> Generator[Found]:
        """Everything in a directory, its own directories' content after each."""
        if len(self.above) > _DEEPEST:
            raise Unsearchable(f"folders in it are nested more than {_DEEPEST} deep")
        try:
            fd = os.open(name, _LISTING, dir_fd=parent)
        except (FileNotFoundError, NotADirectoryError):
            return
        except PermissionError as error:
            place = f"{'/'.join(self.above)!a} in it" if self.above else "it"
            raise Unsearchable(f"{place} cannot be listed") from error
        try:
            device = os.fstat(fd).st_dev
            # A subvolume of btrfs has a device of its own, and yet is seen through the same mount.
            if device == self.device or mount_id(fd) == self.mount_id:
                yield from self._list(fd, device)
        finally:
            os.close(fd)

    def _list(self, directory: int, device: int) -> Generator[Found]:
        with os.scandir(directory) as entries:
            for entry in entries:
                if self.left == 0:
                    raise Unsearchable("too many files lie in it")
                self.left -= 1
                self.above.append(entry.name)
                path = "/".join(self.above)
                if entry.is_dir(follow_symlinks=False):
                    yield Found(path, None, is_socket=False)
                    yield from self.into(directory, entry.name)
                else:
                    yield Found(path, Identity(device, entry.inode()), _is_socket(entry))
                self.above.pop()


def search(directory: int, *, at_most: int) -> Generator[Found]:
    """Everything below an open directory in its file system.

    Follows no link. Raises Unsearchable when there are more than `at_most` entries, or a directory
    that cannot be listed, and OSError.
    """
    return _Search(os.fstat(directory).st_dev, mount_id(directory), at_most).into(directory, ".")


def _is_socket(entry: os.DirEntry[str]) -> bool:
    if entry.is_file(follow_symlinks=False):
        return False
    with contextlib.suppress(FileNotFoundError):
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    return False


def parse_listening(data: bytes) -> frozenset[str]:
    """The paths that Unix sockets listen at, from /proc/net/unix, as they were bound.

    A process chose them, newlines included: lines that are no socket's are passed over.
    """
    return frozenset(
        os.fsdecode(path)
        for flags, path in _UNIX_SOCKET.findall(data)
        if int(flags, 16) & _ACCEPTING
    )
