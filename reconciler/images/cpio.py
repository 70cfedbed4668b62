"""A writer of initial RAM disks: cpio "newc" (Documentation/driver-api/early-userspace/
buffer-format.rst), the same bytes for the same entries."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.errors import BoxError

_TRAILER = "TRAILER!!!"
_LIMIT_BYTES = 0xFFFFFFFF  # a size is eight hexadecimal digits


@dataclass(frozen=True)
class Entry:
    """One file: `mode` with its type bits, `data` for a regular file, (major, minor) of a node."""

    name: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def directory(name: str, mode: int = 0o755) -> Entry:
    """Return the entry of a directory."""
    return Entry(name, stat.S_IFDIR | mode)


def regular(name: str, data: bytes, mode: int) -> Entry:
    """Return the entry of a regular file."""
    return Entry(name, stat.S_IFREG | mode, data)


def character_device(name: str, major: int, minor: int, mode: int) -> Entry:
    """Return the entry of a character device."""
    return Entry(name, stat.S_IFCHR | mode, b"", (major, minor))


def archive(entries: Iterable[Entry]) -> bytes:
    """Return the archive of `entries`, in their order, all owned by root and of 1 January 1970."""
    parts: list[bytes] = []
    for inode, entry in enumerate(entries, start=1):
        parts.append(_member(entry, inode))
    parts.append(_member(Entry(_TRAILER, 0), 0))
    return b"".join(parts)


def _member(entry: Entry, inode: int) -> bytes:
    name = entry.name.encode() + b"\0"
    if len(entry.data) > _LIMIT_BYTES:
        raise BoxError(f"{entry.name} is too large for an initial RAM disk")
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (
        inode,
        entry.mode,
        0,  # uid
        0,  # gid
        links,
        0,  # mtime
        len(entry.data),
        0,  # device of the file itself
        0,
        *entry.device,
        len(name),
        0,  # checksum, unused by newc
    )
    header = b"070701" + b"".join(b"%08x" % field for field in fields)
    return _padded(header + name) + _padded(entry.data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
