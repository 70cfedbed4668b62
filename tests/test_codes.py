"""Each kind of error has one word for programs, and each word a meaning."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import reconciler
from reconciler.codes import MEANINGS, Code
from reconciler.errors import BoxError, Busy, Missing, NotFound, NotRunning, Refused


def kinds() -> set[type[BoxError]]:
    """Every class of errors that the package has."""
    for module in pkgutil.walk_packages(reconciler.__path__, "reconciler."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found: set[type[BoxError]] = set()
    new: list[type[BoxError]] = [BoxError]
    while new:
        kind = new.pop()
        found.add(kind)
        new += kind.__subclasses__()
    return found


def test_each_error_has_a_word_and_each_word_an_error() -> None:
    found = {kind.code for kind in kinds() if kind.__module__.startswith("reconciler.")}
    assert found == set(Code)


def test_each_word_has_a_meaning_and_is_one_word() -> None:
    assert MEANINGS.keys() == set(Code)
    assert all(word.replace("_", "").isalpha() and word.islower() for word in Code)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (BoxError, "failed"),
        (Refused, "refused"),
        (Missing, "unavailable"),
        (NotFound, "not_found"),
        (NotRunning, "not_running"),
        (Busy, "busy"),
    ],
)
def test_the_words_stay_the_same(kind: type[BoxError], word: str) -> None:
    assert kind("x").code == word
