"""One Boxfile of a watched folder, read without being held up or fooled by what lies there."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from reconciler.boxfile.loader import load
from reconciler.boxfile.names import InvalidName, check_name
from reconciler.boxfile.problems import InvalidBoxfile, Problem, printable
from reconciler.boxfile.text import MAX_BYTES
from reconciler.engine.spec import Spec, spec_of

SETTLE_SECONDS = 0.08
"""How long a file must not have changed before its text is believed."""

_CLOCK_GRAIN_SECONDS = 0.02
# O_NONBLOCK: opening a FIFO without it waits for a writer.
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells one content of a file from the next, from stat(2) of the file itself."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int

    def __str__(self) -> str:
        """One word, for records."""
        return f"{self.device}:{self.inode}:{self.size_bytes}:{self.mtime_ns}:{self.ctime_ns}"


@dataclass(frozen=True, slots=True)
class Declared:
    """A good Boxfile."""

    spec: Spec


@dataclass(frozen=True, slots=True)
class Unsettled:
    """It is being written: look again in a moment."""


@dataclass(frozen=True, slots=True)
class Faulty:
    """It is there and says nothing: `reason` is one CamelCase word, `problems` have places."""

    reason: str
    message: str
    problems: tuple[Problem, ...] = ()


FileState = Declared | Unsettled | Faulty


def stamp_of(found: os.stat_result) -> Stamp:
    """The stamp in a stat(2) result."""
    return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def look_at(directory: int, relative: str) -> os.stat_result | Faulty:
    """What `relative` below the open `directory` is, links followed; a fault if no regular file.

    Asked before opening: opening a device can already do something.
    """
    try:
        found = os.stat(relative, dir_fd=directory)
    except OSError as error:
        return _unreadable(error)
    return found if stat.S_ISREG(found.st_mode) else _not_regular(found.st_mode)


def settled(found: os.stat_result, now: float) -> bool:
    """Whether the file rests since SETTLE_SECONDS; `now` is time.time().

    The inode's change time is the kernel's own and cannot be set. A server whose clock differs
    from ours gives times that say nothing, and counts as settled.
    """
    age = now - found.st_ctime_ns / 1e9
    return not -_CLOCK_GRAIN_SECONDS <= age < SETTLE_SECONDS


def read_entry(directory: int, relative: str, name: str, path: Path) -> FileState:
    """Read and parse one Boxfile, which is at `path` too. Raises nothing, whatever is there."""
    try:
        check_name(name)
    except InvalidName as error:
        return Faulty("InvalidName", str(error))
    try:
        data = _read_stable(directory, relative)
    except OSError as error:
        return _unreadable(error)
    if not isinstance(data, bytes):
        return data
    try:
        return Declared(spec_of(name, load(data, source=str(path)), path.parent))
    except InvalidBoxfile as error:
        empty = error.problems[0].message.startswith("is empty")
        reason = "EmptySpec" if empty else "InvalidSpec"
        return Faulty(reason, str(error.problems[0]), error.problems)


def _read_stable(directory: int, relative: str) -> bytes | Unsettled | Faulty:
    fd = os.open(relative, _OPEN, dir_fd=directory)
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            return _not_regular(before.st_mode)
        if before.st_size > MAX_BYTES:
            return _too_large()
        data = _read(fd)
        if stamp_of(os.fstat(fd)) != stamp_of(before):
            return Unsettled()
    finally:
        os.close(fd)
    return _too_large() if len(data) > MAX_BYTES else data


def _read(fd: int) -> bytes:
    """At most one byte more than a Boxfile may have: a file can grow after fstat."""
    parts = []
    left = MAX_BYTES + 1
    while left > 0 and (part := os.read(fd, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _too_large() -> Faulty:
    return Faulty("TooLarge", f"is larger than {MAX_BYTES >> 10} KiB")


def _unreadable(error: OSError) -> Faulty:
    return Faulty("Unreadable", f"cannot be read: {printable(error.strerror or str(error))}")


def _not_regular(mode: int) -> Faulty:
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return Faulty("NotRegular", f"is {kinds.get(stat.S_IFMT(mode), 'no regular file')}, no file")
