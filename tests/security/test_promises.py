"""The list of promises: whole, kept in one place, each read from outside and attacked by a test."""

from __future__ import annotations

import ast
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.confinement.judging import judge
from reconciler.confinement.promises import PROMISES
from tests.confinement.readings import POLICY, READING
from tests.security import promise_files
from tests.security.promise_files import DOCUMENT, MODULE, REPO, SOURCE, row_of, rows

ADVICE = "run this with BOX_UPDATE_SCHEMAS=1 and commit the result"


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def exists(node: str) -> bool:
    """Whether a test of this ID, FILE::FUNCTION, is there."""
    file, _, name = node.partition("::")
    return name.startswith("test_") and name in functions_of(REPO / file)


def test_the_committed_module_is_the_lists() -> None:
    if os.environ.get("BOX_UPDATE_SCHEMAS") == "1":
        MODULE.write_text(promise_files.module_text(rows()))
    assert MODULE.read_text() == promise_files.module_text(rows()), ADVICE


def test_the_committed_table_is_the_lists() -> None:
    text = DOCUMENT.read_text()
    wanted = promise_files.document_with(text, promise_files.table(rows()))
    if os.environ.get("BOX_UPDATE_SCHEMAS") == "1":
        DOCUMENT.write_text(wanted)
    assert DOCUMENT.read_text() == wanted, ADVICE
    assert text.count(promise_files.BEGIN) == text.count(promise_files.END) == 1


def test_every_promise_is_judged_and_nothing_else_is() -> None:
    listed = [each.id for each in rows()]
    assert len(set(listed)) == len(listed)
    assert [fact.promise for fact in judge(POLICY, READING)] == listed
    assert [each.id for each in PROMISES] == listed


@pytest.mark.parametrize("promise", rows(), ids=lambda each: each.id)
def test_each_promise_is_read_from_outside_and_attacked(promise: promise_files.Row) -> None:
    named = (*promise.outside, *promise.attack)
    assert [node for node in named if not exists(node)] == []


def one() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(SOURCE.read_text())[0]
    return found


@pytest.mark.parametrize("field", ["outside", "attack", "backends", "sentence", "read", "expect"])
@pytest.mark.parametrize("left", ["gone", "empty"])
def test_a_promise_that_lacks_something_is_refused(field: str, left: str) -> None:
    value = one()
    if left == "gone":
        del value[field]
    else:
        value[field] = type(value[field])()
    with pytest.raises(AssertionError, match=field):
        row_of(value)


def test_a_promise_of_an_unknown_kind_is_refused() -> None:
    for change in ({"group": "else"}, {"backends": ["xen"]}, {"attacks": ["x"]}):
        with pytest.raises(AssertionError):
            row_of({**one(), **change})


def test_a_test_that_does_not_exist_is_noticed() -> None:
    good = "tests/linux/test_reading.py::test_the_hosts_network"
    assert exists(good)
    assert not exists(good + "s")
    assert not exists("tests/nowhere.py::test_the_hosts_network")
    assert not exists("tests/linux/test_reading.py::policy")
