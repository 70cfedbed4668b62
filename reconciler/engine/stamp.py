"""What tells one content of a file from the next without reading it."""

from __future__ import annotations

import os
from typing import NamedTuple


class Stamp(NamedTuple):
    """From stat(2) of the file itself; times in nanoseconds."""

    device: int
    inode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int

    def __str__(self) -> str:
        """One word, for records."""
        return ":".join(map(str, self))


def stamp_of(found: os.stat_result) -> Stamp:
    """The stamp in a stat(2) result."""
    return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
