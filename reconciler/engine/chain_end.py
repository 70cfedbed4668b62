"""Where a chain of events begins and ended when it was last written, kept beside it.

A chain alone shows what was changed before its last line, not that this line was, or that lines
behind it are gone; nor whether older ones were dropped by box or removed by somebody.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from reconciler.linux import files

FIRST = "0" * 64
"""What the first event follows."""


@dataclass(frozen=True)
class Start:
    """What is kept begins with the older file `file`; its first line follows `digest`.

    Before it `events` lines of `size` bytes were dropped, to keep the chain bounded.
    """

    file: int = 1
    size: int = 0
    digest: str = FIRST
    events: int = 0


@dataclass(frozen=True)
class End:
    """All lines, dropped ones too, had so many bytes, the last of them this SHA-256."""

    size: int = 0
    digest: str = FIRST
    start: Start = Start()

    @property
    def at_start(self) -> bool:
        """Whether nothing is kept."""
        return (self.size, self.digest) == (self.start.size, self.start.digest)


def path_of(events: Path) -> Path:
    """The file that tells the end of the chain in `events`."""
    return events.with_name(f"{events.stem}.end.json")


def read(events: Path) -> End | None:
    """The end that was noted, None when none is, or it cannot be understood."""
    try:
        value = files.read_json(path_of(events))
        end = End(value["size"], value["digest"], Start(**value.get("start", {})))
    except (FileNotFoundError, files.BrokenFile, KeyError, TypeError):
        return None
    return end if _is_sound(end) else None


def _is_sound(end: End) -> bool:
    numbers: tuple[object, ...] = (end.size, end.start.file, end.start.size, end.start.events)
    digests: tuple[object, ...] = (end.digest, end.start.digest)
    return all(isinstance(each, int) for each in numbers) and all(
        isinstance(each, str) for each in digests
    )


def write(events: Path, end: End, *, durable: bool = False) -> None:
    """Note an end, after the line: who is killed in between leaves it behind the chain's own.

    A start must be `durable` before what was dropped is gone. Raises OSError.
    """
    files.write_json(path_of(events), asdict(end), durable=durable)
