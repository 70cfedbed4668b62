"""What is wrong with a Boxfile: problems with their place, and the error that carries them all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.codes import Code
from reconciler.errors import BoxError

SHOWN_CHARACTERS = 60
# More of them help nobody, and a hostile file could have one a byte.
MOST_PROBLEMS = 50


def shown(text: str) -> str:
    """Quote a user's text for a message: on one line, no terminal escapes, at most 60 characters.

    The quoted text is also a YAML double-quoted scalar when nothing was cut off.
    """
    cut = text[:SHOWN_CHARACTERS]
    return '"' + "".join(map(_escaped, cut)) + ('"' if cut == text else '…"')


def printable(text: str) -> str:
    """Replace what a terminal would act on by its escape; text for a line of a message."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a Boxfile. Line and column count from 1, the column in characters.

    `path` is the field (`env.PATH`), empty when the text as a whole is meant.
    """

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        """The line an editor can jump to."""
        field = f"{printable(self.path)}: " if self.path else ""
        return f"{printable(self.file)}:{self.line}:{self.column}: {field}{self.message}"

    @property
    def order(self) -> tuple[int, int, str, str]:
        """The key problems of one file are sorted by."""
        return (self.line, self.column, self.path, self.message)


class InvalidBoxfile(BoxError):
    """A Boxfile that was refused, with its first problems in the order of the text.

    `more` is the number of problems further down that are not among the given ones.
    """

    code = Code.INVALID_BOXFILE

    def __init__(self, source: str, problems: Iterable[Problem], more: int = 0) -> None:
        found = sorted(set(problems), key=lambda problem: problem.order)
        self.problems = tuple(found[:MOST_PROBLEMS])
        self.count = len(found) + more
        count = f"{self.count} problems" if self.count > 1 else "1 problem"
        details = "\n".join(str(problem) for problem in self.problems)
        if self.count > MOST_PROBLEMS:
            details += f"\nand {self.count - MOST_PROBLEMS} more"
        super().__init__(f"{printable(source)}: {count}", details=details)
