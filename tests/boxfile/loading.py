"""What tests of the loader share: loading, and what holds for every refusal."""

from __future__ import annotations

import pytest

from reconciler.boxfile.loader import load
from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.problems import InvalidBoxfile, Problem

LEAST = b"base: builtin:busybox\nnetwork: none\n"
LONGEST_MESSAGE = 1000


def problems_of(data: bytes) -> tuple[Problem, ...]:
    """The problems of a text that must be refused."""
    with pytest.raises(InvalidBoxfile) as refusal:
        load(data, source="web.Boxfile")
    return refusal.value.problems


def outcome(data: bytes) -> Boxfile | None:
    """Load, or check that the refusal is one that can be shown; nothing else may be raised."""
    refusal = None
    try:
        return load(data, source="x")
    except InvalidBoxfile as error:
        refusal = error
    problems = refusal.problems
    assert problems
    assert list(problems) == sorted(problems, key=lambda problem: problem.order)
    for problem in problems:
        assert str(problem).isprintable()
        assert len(str(problem)) < LONGEST_MESSAGE
        assert "box itself failed" not in problem.message
    return None
