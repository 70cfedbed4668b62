from __future__ import annotations

import re
from pathlib import Path

import pytest

from reconciler.boxfile.loader import load, read
from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.support import AVAILABLE, LACKS
from reconciler.boxfile.titles import TITLES
from tests.boxfile.corpus import BAD, EXAMPLES, GOOD, expected
from tests.boxfile.loading import outcome, problems_of

EXPECTED = [line for path in BAD for line in expected(path)]


@pytest.mark.parametrize("path", [*GOOD, *EXAMPLES], ids=lambda path: path.name)
def test_good_corpus_and_shipped_examples_load(path: Path) -> None:
    load(path.read_bytes(), source=path.name)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name)
def test_bad_corpus_gives_exactly_the_announced_problems(path: Path) -> None:
    found = problems_of(path.read_bytes())
    assert [str(problem).removeprefix("web.Boxfile:") for problem in found] == expected(path)
    assert outcome(path.read_bytes()) is None


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name)
def test_every_problem_of_the_corpus_is_one_of_its_own(path: Path) -> None:
    lines = expected(path)
    assert lines
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize("field", TITLES)
def test_every_field_has_a_bad_boxfile(field: str) -> None:
    path = "".join(rf"\.{part}(\[\d+\])?" for part in field.split("."))[2:]
    assert any(re.match(rf"\d+:\d+: {path}: ", line) for line in EXPECTED)


@pytest.mark.parametrize("backend", LACKS)
def test_everything_that_a_backend_lacks_has_a_bad_boxfile(backend: str) -> None:
    for lack in LACKS[backend]:
        assert any(line.endswith(lack.message) for line in EXPECTED), lack


def test_every_field_has_a_good_boxfile_that_sets_it_otherwise() -> None:
    loaded = [load(path.read_bytes(), source=path.name) for path in GOOD]
    for name in Boxfile.model_fields:
        assert any(name in each.model_fields_set for each in loaded), name
    for name in Boxfile.model_fields.keys() - {"version"}:
        assert len({repr(getattr(each, name)) for each in loaded}) > 1, name


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.name)
def test_only_a_backend_to_come_has_a_note(path: Path) -> None:
    loaded = read(path.read_bytes(), source=path.name)
    notes = [(note.path, note.message) for note in loaded.notes]
    backend = loaded.boxfile.backend
    if backend in AVAILABLE:
        assert notes == []
    else:
        have = ", ".join(sorted(AVAILABLE))
        message = f"this version of box does not have {backend} yet; it has {have}"
        assert notes == [("backend", message)]
