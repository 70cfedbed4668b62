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
    head, comm, fields = _fields(data)
    if len(fields) < 20:
        raise unlike("stat", data)
    return Stat(
        pid=number(head, "stat"),
        comm=comm,
        state=fields[0].decode("ascii", "replace"),
        parent_pid=number(fields[1], "stat"),
        tty=number(fields[4], "stat"),
        start_time_ticks=number(fields[19], "stat"),
    )


def parse_environment(data: bytes) -> int | None:
    """How many bytes of environment a process was started with, from its stat (fields 50, 51).

    None where the kernel shows them as 0: to who may not trace it, and of its own processes. A
    process may say something else later (PR_SET_MM of prctl(2)). Unlike /proc/PID/environ, this is
    shown to who owns its user namespace and has another UID.
    """
    fields = _fields(data)[2]
    if len(fields) < 49:
        raise unlike("stat", data)
    start, end = (number(word, "stat") for word in fields[47:49])
    return end - start if start else None


def _fields(data: bytes) -> tuple[bytes, bytes, list[bytes]]:
    """The PID, the name, and the fields from the third on."""
    head, opening, rest = data.partition(b" (")
    comm, closing, tail = rest.rpartition(b") ")
    if not opening or not closing:
        raise unlike("stat", data)
    return head, comm, tail.split()


def number(word: bytes, file: str) -> int:
    """The decimal number `word` of /proc/PID/`file`. Raises ParseError."""
    # int() also takes "1_0", " 1" and other alphabets' digits, which the kernel never writes.
    if not re.fullmatch(rb"-?[0-9]{1,20}", word):
        raise unlike(file, word)
    return int(word)


def unlike(file: str, data: bytes) -> ParseError:
    """The error that /proc/PID/`file` holds `data`."""
    return ParseError(f"/proc/PID/{file} cannot be understood", details=repr(data[:200]))
