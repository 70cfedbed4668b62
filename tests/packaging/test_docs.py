"""What the documents say is so."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

REPO = Path(__file__).parent.parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("line", (REPO / "SECURITY.md").read_text().splitlines())
def test_each_promise_names_tests_that_exist(line: str) -> None:
    for file, name in NAMED.findall(line):
        assert name in functions_of(REPO / file), f"{file} has no {name}"


def test_each_promise_names_a_test() -> None:
    text = (REPO / "SECURITY.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = [line for line, below in pairwise(lines) if below.startswith("|---")]
    table = [line for line in lines if line not in heads and not line.startswith("|---")]
    assert len(heads) == 2
    assert len(table) > 20
    assert [line for line in table if not NAMED.search(line)] == []


def test_links_between_documents_lead_somewhere() -> None:
    for document in [*REPO.glob("*.md"), *REPO.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
