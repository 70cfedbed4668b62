"""Files made of a hostile tar stream: all of it in a fresh directory, or nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from reconciler.engine.archives.pipes import Stream
from reconciler.images.tar import BadArchive, Header, Kind, components, members, padding
from reconciler.linux import files

Parts = tuple[bytes, ...]

_MEMBERS_LIMIT = 1_000_000
_DEPTH_LIMIT = 256
_COPY_BYTES = 1 << 18
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_INTO = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNER = 0o700


@dataclass
class Unpacked:
    """What an archive held, below an open directory of its own.

    All lies in the one entry `top`; None: in the directory itself. `directories` are those below
    it, `top` included as (), with modes and times (seconds), parents first. Until `restrict` is
    called their owner may do everything in them.
    """

    top: bytes | None = None
    directories: list[tuple[Parts, int, int]] = field(default_factory=list)


def unpack(stream: Stream, into: int) -> Unpacked:
    """Make files of all members of a stream in the empty directory `into`.

    Modes lose set-user-ID, set-group-ID and sticky bits; owners and extended attributes are not
    kept, links are, as they are written. Raises BadArchive when a name is absolute, climbs, comes
    twice, leads through a link, or is a device's, a fifo's or beside `top`. Raises OSError.
    """
    unpacking = _Unpacking(into)
    for count, header in enumerate(members(stream)):
        if count >= _MEMBERS_LIMIT:
            raise BadArchive("the archive holds too many files")
        unpacking.add(header, stream)
    if unpacking.is_empty:
        raise BadArchive("the archive is empty")
    stream.finish()
    for parts, mode, mtime in reversed(unpacking.found.directories):
        with entered(into, unpacking.whole(parts)) as fd:
            os.fchmod(fd, mode | _OWNER)
            os.utime(fd, (mtime, mtime))
    return unpacking.found


@contextmanager
def entered(directory: int, parts: Parts) -> Iterator[int]:
    """Open a directory below another one, by way of no link. Raises OSError."""
    fd = os.open(".", _INTO, dir_fd=directory)
    try:
        for part in parts:
            inner = os.open(part, _INTO, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


class _Unpacking:
    def __init__(self, into: int) -> None:
        self._into = into
        self.found = Unpacked()
        self.is_empty = True

    def whole(self, parts: Parts) -> Parts:
        """The parts from `into` on, for parts from the top on."""
        return parts if self.found.top is None else (self.found.top, *parts)

    def add(self, header: Header, stream: Stream) -> None:
        parts = components(header.name)
        if self.is_empty:
            self.is_empty = False
            self.found.top = parts[0] if parts else None
        self._check(parts, header)
        if not parts:
            self.found.directories.append(((), header.mode & 0o777, header.mtime))
            return
        with self._parent(parts) as parent:
            try:
                self._make(parent, parts, header, stream)
            except FileExistsError as error:
                raise BadArchive(
                    "a name in the archive comes twice", details=_shown(parts)
                ) from error

    def _check(self, parts: Parts, header: Header) -> None:
        if len(parts) > _DEPTH_LIMIT:
            raise BadArchive("folders in the archive go too deep", details=_shown(parts[:8]))
        if self.found.top is not None and parts[:1] != (self.found.top,):
            raise BadArchive("the archive holds more than one thing", details=_shown(parts))
        if not parts and header.kind is not Kind.DIRECTORY:
            raise BadArchive("the archive's first folder is none")

    @contextmanager
    def _parent(self, parts: Parts) -> Iterator[int]:
        try:
            with entered(self._into, parts[:-1]) as fd:
                yield fd
        except NotADirectoryError as error:
            raise BadArchive(
                "a name in the archive leads through a link or a file", details=_shown(parts)
            ) from error
        except FileNotFoundError as error:
            raise BadArchive(
                "a name in the archive is in no folder of it", details=_shown(parts)
            ) from error

    def _make(self, parent: int, parts: Parts, header: Header, stream: Stream) -> None:
        name = parts[-1]
        if header.kind is Kind.DIRECTORY:
            os.mkdir(name, _OWNER, dir_fd=parent)
            below = parts if self.found.top is None else parts[1:]
            self.found.directories.append((below, header.mode & 0o777, header.mtime))
        elif header.kind is Kind.FILE:
            _write(parent, name, header, stream)
        elif header.kind is Kind.SYMLINK:
            if not header.link:
                raise BadArchive("a link in the archive leads nowhere", details=_shown(parts))
            os.symlink(header.link, name, dir_fd=parent)
        elif header.kind is Kind.HARD_LINK:
            self._link(parent, parts, header)
        else:
            raise BadArchive("the archive holds a device or a fifo", details=_shown(parts))

    def _link(self, parent: int, parts: Parts, header: Header) -> None:
        target = components(header.link)
        if not target:
            raise BadArchive("a hard link in the archive leads nowhere", details=_shown(parts))
        with self._parent(target) as directory:
            if not _is_file(directory, target[-1]):
                raise BadArchive("a hard link in the archive leads to no file of it",
                                 details=_shown(parts))  # fmt: skip
            os.link(target[-1], parts[-1], src_dir_fd=directory, dst_dir_fd=parent,
                    follow_symlinks=False)  # fmt: skip


def _is_file(directory: int, name: bytes) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _write(parent: int, name: bytes, header: Header, stream: Stream) -> None:
    fd = os.open(name, _NEW, 0o600, dir_fd=parent)
    try:
        left = header.size
        while left > 0:
            data = stream.read(min(left, _COPY_BYTES))
            if not data:
                raise BadArchive("the archive is cut short")
            files.write_all(fd, data)
            left -= len(data)
        stream.skip(padding(header.size))
        os.fchmod(fd, header.mode & 0o777)
        os.utime(fd, (header.mtime, header.mtime))
    finally:
        os.close(fd)


def restrict(place: int, unpacked: Unpacked, kept: frozenset[Parts]) -> None:
    """Take from the owner the rights that directories' modes do not give; `kept` were there before.

    `place` is the directory that everything lies in by now. Raises OSError.
    """
    for parts, mode, _ in reversed(unpacked.directories):
        if mode & _OWNER != _OWNER and parts not in kept:
            with entered(place, parts) as fd:
                os.fchmod(fd, mode)


def _shown(parts: Parts) -> str:
    return ascii(b"/".join(parts)[:200])[2:-1]
