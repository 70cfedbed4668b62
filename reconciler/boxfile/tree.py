"""A parsed YAML text: plain values, the place of each, and what was refused on the way."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from reconciler.boxfile.problems import Problem, shown
from reconciler.boxfile.scalars import Unquoted

# Stands in a path for a key that cannot be one.
ASIDE = -1
Path = tuple[str | int, ...]
Scalar = str | int | bool | Unquoted
Value = Scalar | list["Value"] | dict[str, "Value"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands (counted from 1) and, for an unquoted scalar, how it was written."""

    line: int
    column: int
    unquoted: str | None = None


@dataclass(slots=True)
class Tree:
    """A parsed text: its value (None when it holds no document), places and problems.

    `keys` has the place of each mapping key, `places` of each value. `complete` is False when the
    parser had to stop early, so that what is missing from `value` says nothing.
    """

    source: str
    value: Value | None = None
    places: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    broken: set[Path] = field(default_factory=set)
    complete: bool = True

    def add(self, place: Place, path: Path, message: str) -> None:
        """Record a problem at a place."""
        self.problems.append(
            Problem(self.source, place.line, place.column, path_text(path), message)
        )


def path_text(path: Path) -> str:
    """Write a path as `env.PATH` or `run[2]`; unusual keys are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += "" if part == ASIDE else f"[{part}]"
        else:
            name = part if re.fullmatch("[A-Za-z0-9_-]{1,60}", part) else shown(part)
            text += f".{name}" if text else name
    return text
