from __future__ import annotations

from hypothesis import given

from reconciler.boxfile.digest import digest
from reconciler.boxfile.loader import load
from reconciler.boxfile.model import Boxfile
from tests.boxfile.strategies import BOXFILES


def test_order_comments_and_written_defaults_do_not_matter() -> None:
    one = load(b"base: alpine\nnetwork: none\nenv: {A: a, B: b}\n", source="x")
    other = load(b"env: {B: b, A: a}\n# c\ncpus: 2\nnetwork: none\nbase: alpine\n", source="x")
    assert digest(one) == digest(other)


@given(BOXFILES, BOXFILES)
def test_digests_are_equal_exactly_for_equal_boxfiles(one: Boxfile, other: Boxfile) -> None:
    assert (digest(one) == digest(other)) == (one == other)
