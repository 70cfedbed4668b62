"""/proc/PID/stat, in a file of its own: every command reads one, and few read more of /proc."""

from __future__ import annotations

import re
from typing import NamedTuple

from reconciler.errors import BoxError


class ParseError(BoxError):
    """A file of /proc does not look as the kernel writes it."""


class Stat(NamedTuple):
    """/proc/PID/stat: `start_time_ticks` are clock ticks since boot (field 22)."""

    pid: int
    comm: bytes
    state: str
    parent_pid: int
    tty: int
    start_time_ticks: int


def parse_stat(data: bytes) -> Stat:
    """Parse /proc/PID/stat. The process chose `comm`, which may hold spaces and brackets."""
    head, opening, rest = data.partition(b" (")
    comm, closing, tail = rest.rpartition(b") ")
    fields = tail.split()
    if not opening or not closing or len(fields) < 20:
        raise unlike("stat", data)
    return Stat(
        pid=number(head, "stat"),
        comm=comm,
        state=fields[0].decode("ascii", "replace"),
        parent_pid=number(fields[1], "stat"),
        tty=number(fields[4], "stat"),
        start_time_ticks=number(fields[19], "stat"),
    )


def number(word: bytes, file: str) -> int:
    """The decimal number `word` of /proc/PID/`file`. Raises ParseError."""
    # int() also takes "1_0", " 1" and other alphabets' digits, which the kernel never writes.
    if not re.fullmatch(rb"-?[0-9]{1,20}", word):
        raise unlike(file, word)
    return int(word)


def unlike(file: str, data: bytes) -> ParseError:
    """The error that /proc/PID/`file` holds `data`."""
    return ParseError(f"/proc/PID/{file} cannot be understood", details=repr(data[:200]))
