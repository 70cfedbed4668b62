"""Subordinate IDs: /etc/subuid and /etc/subgid, and what must not overlap with them."""

from __future__ import annotations

import os
import pwd
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.confinement.policy import SLOT_SIZE
from reconciler.errors import BoxError
from reconciler.linux import procfs

if TYPE_CHECKING:
    from collections.abc import Iterable

# Above what distributions give away by themselves (shadow's SUB_UID_MIN, systemd's UIDS-GIDS.md).
_FIRST_SUGGESTED_ID = 524_288
_MOST_SHOWN = 200


class BrokenTable(BoxError):
    """A line of /etc/subuid, /etc/subgid, /etc/passwd or /etc/group that cannot be understood."""


@dataclass(frozen=True)
class HostRange:
    """`size` host IDs from `start`."""

    start: int
    size: int

    @property
    def end(self) -> int:
        """The first ID beyond."""
        return self.start + self.size

    def overlaps(self, other: HostRange) -> bool:
        """Whether both hold an ID."""
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True)
class SubordinateRanges:
    """What one user has, in the files' order."""

    uids: tuple[HostRange, ...]
    gids: tuple[HostRange, ...]


@dataclass(frozen=True)
class OwnedRange:
    """One line of /etc/subuid or /etc/subgid; `owner` is a name or a number."""

    owner: str
    range: HostRange


@dataclass(frozen=True)
class Tables:
    """The host's ID tables, parsed: who has which subordinate IDs, and which IDs are accounts."""

    subuids: tuple[OwnedRange, ...]
    subgids: tuple[OwnedRange, ...]
    uids: frozenset[int]
    gids: frozenset[int]


def parse_subids(data: bytes, file: str) -> tuple[OwnedRange, ...]:
    """Parse /etc/subuid or /etc/subgid (subuid(5)); BrokenTable names `file` and the line."""
    found = []
    for number, line in _lines(data):
        owner, *numbers = line.split(":")
        if len(numbers) != 2 or not owner or not all(_is_number(word) for word in numbers):
            raise BrokenTable(f"{file}:{number}: not owner:start:count", details=line[:_MOST_SHOWN])
        each = HostRange(int(numbers[0]), int(numbers[1]))
        if each.end - 1 > procfs.MAX_ID:
            raise BrokenTable(
                f"{file}:{number}: IDs end at {procfs.MAX_ID}", details=line[:_MOST_SHOWN]
            )
        if each.size:
            found.append(OwnedRange(owner, each))
    return tuple(found)


def parse_account_ids(data: bytes) -> frozenset[int]:
    """The third field of each line of /etc/passwd or /etc/group; NIS's + lines have none."""
    fields = (line.split(":") for _, line in _lines(data))
    return frozenset(int(each[2]) for each in fields if len(each) > 2 and _is_number(each[2]))


def _lines(data: bytes) -> Iterable[tuple[int, str]]:
    for number, line in enumerate(os.fsdecode(data).split("\n"), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 10


def read_tables(etc: Path = Path("/etc")) -> Tables:
    """Read the four tables; one that does not exist is empty."""
    return Tables(
        parse_subids(_read(etc / "subuid"), str(etc / "subuid")),
        parse_subids(_read(etc / "subgid"), str(etc / "subgid")),
        parse_account_ids(_read(etc / "passwd")),
        parse_account_ids(_read(etc / "group")),
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def user_name(uid: int) -> str:
    """The account's name, or its number when it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def ranges_of(tables: Tables, name: str, uid: int) -> SubordinateRanges:
    """The subordinate ranges of one user, who may be given by name or by number."""
    names = {name, str(uid)}
    return SubordinateRanges(_disjoint(tables.subuids, names), _disjoint(tables.subgids, names))


def _disjoint(lines: tuple[OwnedRange, ...], names: set[str]) -> tuple[HostRange, ...]:
    """Own ranges, those that overlap joined into one: the kernel refuses a map that repeats IDs."""
    joined: list[HostRange] = []
    for line in lines:
        if line.owner not in names:
            continue
        new = line.range
        for old in [each for each in joined if each.overlaps(new)]:
            joined.remove(old)
            start = min(old.start, new.start)
            new = HostRange(start, max(old.end, new.end) - start)
        joined.append(new)
    return tuple(joined)


def usermod_line(tables: Tables, name: str) -> str:
    """What gives `name` one slot more: a command to paste, or why there is none."""
    command = usermod_command(tables, name, 1)
    if command is None:
        return "no IDs are left above the ranges in use: free some in /etc/subuid and /etc/subgid"
    return shlex.join(command)


def missing_tables(etc: Path = Path("/etc")) -> tuple[str, ...]:
    """Those of /etc/subuid and /etc/subgid that do not exist: usermod gives nobody IDs without."""
    return tuple(str(etc / name) for name in ("subuid", "subgid") if not (etc / name).exists())


def with_sudo(line: str) -> str:
    """`usermod_line` as anybody but root pastes it."""
    return f"sudo {line}" if line.startswith("usermod") else line


def usermod_command(tables: Tables, name: str, slots: int) -> tuple[str, ...] | None:
    """The command that gives `name` so many slots more, above every range and account in use.

    None when no IDs are left there.
    """
    ends = [line.range.end for line in (*tables.subuids, *tables.subgids)]
    # The highest accounts may be far up (directory services); only those below 2^31 push us.
    ends += [each + 1 for each in (*tables.uids, *tables.gids) if each < 1 << 31]
    start = max(_FIRST_SUGGESTED_ID, -(-max(ends, default=0) // SLOT_SIZE) * SLOT_SIZE)
    last = start + slots * SLOT_SIZE - 1
    if last > procfs.MAX_ID:
        return None
    added = f"{start}-{last}"
    return ("usermod", "--add-subuids", added, "--add-subgids", added, name)
