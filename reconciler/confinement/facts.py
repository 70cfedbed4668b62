"""A fact: what was promised, what was read, and whether the two are the same."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Verdict(StrEnum):
    """Only `same` is green; `not_applicable` is what this kernel does not have at all."""

    SAME = "same"
    DIFFERS = "differs"
    UNREADABLE = "unreadable"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True)
class Fact:
    """One promise: its id, and `want` and `have` as a person reads them."""

    promise: str
    want: str
    have: str
    verdict: Verdict

    @property
    def failed(self) -> bool:
        """Whether it must be answered: anything but same and not applicable."""
        return self.verdict in {Verdict.DIFFERS, Verdict.UNREADABLE}


@dataclass(frozen=True)
class Finding:
    """One place where the reading is not as wanted."""

    text: str
    verdict: Verdict = Verdict.DIFFERS


def conclude(promise: str, want: str, findings: Iterable[Finding], have: str) -> Fact:
    """The fact of all findings of one promise; `have` tells what was read when there is none.

    A difference outweighs what could not be read.
    """
    found = tuple(findings)
    if not found:
        return Fact(promise, want, have, Verdict.SAME)
    verdicts = {each.verdict for each in found}
    verdict = Verdict.DIFFERS if Verdict.DIFFERS in verdicts else Verdict.UNREADABLE
    texts = dict.fromkeys(each.text for each in found if each.verdict is verdict)
    return Fact(promise, want, "; ".join(texts), verdict)


def unreadable(text: str) -> Finding:
    """A finding that nothing could be read."""
    return Finding(text, Verdict.UNREADABLE)
