"""docs/attacks.md: each kind of attack names the tests that make it, or why there is none yet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.packaging.test_docs import NAMED, REPO, functions_of

TABLE = REPO / "docs" / "attacks.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| attack |")
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_each_attack_names_tests_that_exist_or_says_why_there_is_none(row: list[str]) -> None:
    _attack, answer, tests = row
    assert bool(NAMED.search(tests)) != answer.startswith("not here yet: ")
    for file, name in NAMED.findall(answer + tests):
        assert name in functions_of(REPO / file), f"{file} has no {name}"
    # Whatever else looks like a test is a slip of the pen.
    assert len(re.findall(r"tests/", answer + tests)) == len(NAMED.findall(answer + tests))


def test_every_test_of_attacks_is_in_the_table() -> None:
    named = {file for file, _ in NAMED.findall(TABLE.read_text())}
    own = {str(path.relative_to(REPO)) for path in Path(__file__).parent.glob("test_attacks_*.py")}
    assert own - named == {str(Path(__file__).relative_to(REPO))}
