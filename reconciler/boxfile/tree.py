"""A parsed YAML text: plain values, the place of each, and what was refused on the way."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from reconciler.boxfile.problems import MOST_PROBLEMS, InvalidBoxfile, Problem, shown
from reconciler.boxfile.scalars import Unquoted

# Stands in a path for a key that cannot be one.
ASIDE = -1
# A longer path is none of a Boxfile's fields, whose keys are short and not deep.
_LONGEST_PATH = 200
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

    `keys` has the place of each mapping key, `places` of each value; `broken` are the values that
    are not what the text says. `complete` is False when the parser had to stop early, so that what
    is missing from `value` says nothing. `more` counts the problems that are not in `problems`.
    """

    source: str
    value: Value | None = None
    places: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    more: int = 0
    broken: set[Path] = field(default_factory=set)
    complete: bool = True
    _furthest: tuple[int, int] = (0, 0)

    def add(self, place: Place, path: Path, message: str) -> None:
        """Record a problem at a place.

        When there are as many as anybody is shown, those further down are merely counted: a hostile
        file can have one per byte, each with a long path.
        """
        here = (place.line, place.column)
        if len(self.problems) < MOST_PROBLEMS:
            self._furthest = max(self._furthest, here)
        elif here > self._furthest:
            self.more += 1
            return
        self.problems.append(self.problem(place, path, message))

    def refusal(self) -> InvalidBoxfile:
        """The error that carries all problems of this text."""
        return InvalidBoxfile(self.source, self.problems, self.more)

    def problem(self, place: Place, path: Path, message: str) -> Problem:
        """A problem at a place of this text."""
        return Problem(self.source, place.line, place.column, path_text(path), message)

    def place_of(self, path: Path) -> Place:
        """Where the value at `path` stands; for one that was left out, what it was left out of."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, Place(1, 1))


def path_text(path: Path) -> str:
    """Write a path as `env.PATH` or `run[2]`; unusual keys are quoted, long paths cut."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += "" if part == ASIDE else f"[{part}]"
        else:
            name = part if re.fullmatch("[A-Za-z0-9_-]{1,60}", part) else shown(part)
            text += f".{name}" if text else name
        if len(text) > _LONGEST_PATH:
            return text[:_LONGEST_PATH] + "…"
    return text
