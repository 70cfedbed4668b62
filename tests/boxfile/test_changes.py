from __future__ import annotations

import pytest
from hypothesis import given

from reconciler.boxfile.changes import LIVE, REPLACES, WIDER, Change, changes
from reconciler.boxfile.loader import load
from reconciler.boxfile.model import Boxfile
from tests.boxfile.strategies import BOXFILES

LEAST = "base: alpine\nnetwork: none\n"


def between(old: str, new: str) -> tuple[Change, ...]:
    """Return the changes between two texts, each on top of the least Boxfile."""
    first, second = (load((LEAST + text).encode(), source="x") for text in (old, new))
    return changes(first, second)


def test_every_field_is_classified_once() -> None:
    assert Boxfile.model_fields.keys() == REPLACES | LIVE
    assert not REPLACES & LIVE
    assert WIDER.keys() <= Boxfile.model_fields.keys()


def test_no_difference_is_no_change() -> None:
    assert between("cpus: 2\n", "") == ()


def test_another_machine_needs_a_new_vm() -> None:
    assert between("", "cpus: 4\n") == (Change("cpus", 2, 4, needs_replace=True, widening=False),)


@pytest.mark.parametrize(
    "line", ["timeout_seconds: 5", "env: {A: b}", "state: built", "protect: true"]
)
def test_what_the_running_vm_does_not_depend_on(line: str) -> None:
    (change,) = between("", line + "\n")
    assert not change.needs_replace
    assert not change.widening


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ("isolation: strict\non_drift: alert", "isolation: standard\non_drift: alert"),
        ("readonly: true", "readonly: false"),
        ("on_drift: stop", "on_drift: alert"),
    ],
)
def test_less_confinement_is_widening_and_more_is_not(narrow: str, wide: str) -> None:
    (widened,) = between(narrow + "\n", wide + "\n")
    (narrowed,) = between(wide + "\n", narrow + "\n")
    assert widened.widening
    assert not narrowed.widening


def test_leaving_strict_also_weakens_the_answer_to_drift() -> None:
    assert [change.field for change in between("isolation: strict\n", "") if change.widening] == [
        "isolation",
        "on_drift",
    ]


@given(BOXFILES, BOXFILES)
def test_changes_name_exactly_the_fields_that_differ(old: Boxfile, new: Boxfile) -> None:
    found = {change.field: change.new for change in changes(old, new)}
    assert old.model_copy(update=found) == new
