"""Where a chain of events ended when it was last written, kept beside it.

A chain alone shows what was changed before its last line, not that this line was, or that lines
behind it are gone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from reconciler.linux import files

FIRST = "0" * 64
"""What the first event follows."""


@dataclass(frozen=True)
class End:
    """The file had so many bytes, the last line this SHA-256; `FIRST` when it had none."""

    size: int = 0
    digest: str = FIRST


def path_of(events: Path) -> Path:
    """The file that tells the end of the chain in `events`."""
    return events.with_name(f"{events.stem}.end.json")


def read(events: Path) -> End | None:
    """The end that was noted, None when none is, or it cannot be understood."""
    try:
        value = files.read_json(path_of(events))
    except (FileNotFoundError, files.BrokenFile):
        return None
    size, digest = value.get("size"), value.get("digest")
    return End(size, digest) if isinstance(size, int) and isinstance(digest, str) else None


def write(events: Path, end: End) -> None:
    """Note an end, after the line: who is killed in between leaves it behind the file's own.

    Raises OSError.
    """
    files.write_json(path_of(events), asdict(end), durable=False)
