"""Who has which IDs: lines of /etc/subuid, /etc/subgid, /etc/passwd and /etc/group that collide."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reconciler.engine.host.check import Seen, finding, ok
from reconciler.linux import procfs
from reconciler.linux.subids import BrokenTable, HostRange, parse_subids

_MOST_BYTES = 8 << 20
_TOLD = 4


@dataclass(frozen=True)
class Line:
    """One line that gives IDs away: to whom, and where it stands."""

    file: str
    number: int
    owner: str
    range: HostRange

    def __str__(self) -> str:
        ids = str(self.range.start)
        if self.range.size > 1:
            ids += f"-{self.range.end - 1}"
        return f"{self.file}:{self.number} ({self.owner}: {ids})"


def overlaps(etc: Path = Path("/etc")) -> tuple[tuple[Line, Line], ...]:
    """Each two lines of different owners that hold an ID in common. Raises BrokenTable, OSError."""
    found: list[tuple[Line, Line]] = []
    for subordinate, accounts in (("subuid", "passwd"), ("subgid", "group")):
        ranges = _ranges(etc / subordinate)
        found += _colliding(ranges, _accounts(etc / accounts))
    return tuple(found)


def look(etc: Path = Path("/etc")) -> Seen:
    """What collides, by its lines. Raises BrokenTable, OSError."""
    found = overlaps(etc)
    if not found:
        return ok(
            "no IDs are given twice in /etc/subuid and /etc/subgid, nor are accounts' in them"
        )
    told = "; ".join(f"{one} and {other}" for one, other in found[:_TOLD])
    more = f"; {len(found) - _TOLD} more" if len(found) > _TOLD else ""
    return finding(
        f"IDs given twice, so one may become the other: {told}{more}. box uses no such slot",
        f"give one of the two other IDs: edit {found[0][1].file}, line {found[0][1].number}",
    )


def _colliding(ranges: list[Line], accounts: list[Line]) -> list[tuple[Line, Line]]:
    """One pass over all lines by their first ID: what begins before an earlier one ends."""
    found: list[tuple[Line, Line]] = []
    # Of the ranges that have begun, those of two owners that reach farthest: no other one matters.
    farthest: list[Line] = []
    marked = [*((line, True) for line in ranges), *((line, False) for line in accounts)]
    for line, is_range in sorted(marked, key=lambda each: (each[0].range.start, not each[1])):
        hit = [each for each in farthest if each.range.end > line.range.start]
        # An account's ID is nobody's to give away, the owner's included.
        hit = [each for each in hit if not is_range or each.owner != line.owner]
        if hit:
            found.append((hit[0], line))
        if is_range:
            farthest = _reaching(farthest, line)
    return found


def _reaching(farthest: list[Line], line: Line) -> list[Line]:
    own = max((e for e in (*farthest, line) if e.owner == line.owner), key=lambda e: e.range.end)
    others = [each for each in farthest if each.owner != line.owner]
    return sorted((own, *others), key=lambda each: -each.range.end)[:2]


def _ranges(path: Path) -> list[Line]:
    parse_subids(_read(path), str(path))
    found = []
    for number, text in enumerate(_lines(path), 1):
        stripped = text.strip()
        if not stripped or stripped.startswith("#"):
            continue
        owner, start, size = stripped.split(":")
        if int(size):
            found.append(Line(str(path), number, owner, HostRange(int(start), int(size))))
    return found


def _accounts(path: Path) -> list[Line]:
    found = []
    for number, text in enumerate(_lines(path), 1):
        fields = text.strip().split(":")
        if len(fields) > 2 and fields[2].isascii() and fields[2].isdigit():
            uid = int(fields[2][:20])
            if uid <= procfs.MAX_ID:
                found.append(Line(str(path), number, fields[0], HostRange(uid, 1)))
    return found


def _lines(path: Path) -> list[str]:
    return _read(path).decode(errors="replace").split("\n")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return b""
    if len(data) > _MOST_BYTES:
        raise BrokenTable(f"{path} is larger than {_MOST_BYTES} bytes", hint=f"ls -l {path}")
    return data
