"""Lines of a report on a screen of 80 by 40: a mark, a label, a text, wrapped and escaped."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from reconciler.boxfile.problems import printable
from reconciler.confinement.facts import Verdict

WIDTH = 80
_MARK, _LABEL = 9, 12
_TEXT = WIDTH - _MARK - _LABEL
MARKS = {
    Verdict.SAME: "ok",
    Verdict.NOT_APPLICABLE: "n/a",
    Verdict.DIFFERS: "DIFFERS",
    Verdict.UNREADABLE: "UNREAD",
    None: "-",
}
GOOD, BAD, WARNING, QUIET = "", "bold red", "yellow", "dim"


@dataclass(frozen=True)
class Line:
    """One line, at most WIDTH characters, and how it looks on a terminal that has colours."""

    text: str
    style: str = GOOD


def draw(lines: Iterable[Line], console: Console) -> None:
    """Print lines; coloured where the console has colours."""
    for line in lines:
        console.print(Text(line.text, style=line.style), soft_wrap=True)


def entry(label: str, text: str, *, mark: str = "", style: str = GOOD) -> Iterator[Line]:
    """A label and its text, over as many lines as it takes."""
    first = f"{mark:<{_MARK}}{label:<{_LABEL}}"
    for part in wrapped(text, _TEXT):
        yield Line((first + part).rstrip(), style)
        first = " " * (_MARK + _LABEL)


def paragraph(text: str, style: str = GOOD) -> Iterator[Line]:
    """Text from the left edge."""
    return (Line(part, style) for part in wrapped(text, WIDTH))


def wrapped(text: str, width: int) -> list[str]:
    """Foreign text as lines that a terminal only prints; what is too long for one is broken."""
    return textwrap.wrap(printable(" ".join(text.split())), width, break_on_hyphens=False) or [""]


def cut(text: str, most: int) -> str:
    """At most so many characters, and a sign where some are missing."""
    return text if len(text) <= most else text[: most - 1] + "…"


def path_end(path: object, most: int = 90) -> str:
    """A path with its beginning left out where it is too long."""
    text = str(path)
    return text if len(text) <= most else "…" + text[1 - most :]


def mark_of(verdicts: set[Verdict | None]) -> Verdict | None:
    """The worst of some verdicts; None when nothing was read."""
    for each in (Verdict.DIFFERS, Verdict.UNREADABLE, Verdict.SAME, Verdict.NOT_APPLICABLE):
        if each in verdicts:
            return each
    return None
