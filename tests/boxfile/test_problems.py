from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reconciler.boxfile.problems import (
    MOST_PROBLEMS,
    SHOWN_CHARACTERS,
    InvalidBoxfile,
    Problem,
    printable,
    shown,
)
from reconciler.boxfile.tree import ASIDE, Path, Place, Tree, path_text


@given(st.text(st.characters(), max_size=80))
def test_what_is_shown_is_one_short_printable_line(text: str) -> None:
    quoted = shown(text)
    assert quoted.isprintable()
    # The longest escape is \U0010ffff.
    assert len(quoted) <= 10 * SHOWN_CHARACTERS + 2
    assert printable(text).isprintable()


@given(st.text(max_size=SHOWN_CHARACTERS))
def test_what_is_shown_whole_can_be_pasted_into_a_boxfile(text: str) -> None:
    assert yaml.safe_load(shown(text)) == text


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("env", "PATH"), "env.PATH"),
        (("mounts", 0, "host"), "mounts[0].host"),
        (("env", "A B"), 'env."A B"'),
        (("a\n",), '"a\\x0a"'),
        (("a", ASIDE, 0), "a[0]"),
        (("k" * 61,), '"kkk' + "k" * 57 + '…"'),
    ],
)
def test_paths_are_written_for_people(path: Path, text: str) -> None:
    assert path_text(path) == text


@given(st.lists(st.text() | st.integers(-1, 9999), max_size=16).map(tuple))
def test_any_path_is_short_and_printable(path: Path) -> None:
    assert path_text(path).isprintable()
    assert len(path_text(path)) <= 201


PLACES = st.builds(Place, st.integers(1, 9), st.integers(1, 9))


@given(st.lists(st.tuples(PLACES, st.text("ab", max_size=1)), min_size=1, max_size=200))
def test_the_first_are_kept_whatever_the_order_they_are_found_in(
    found: list[tuple[Place, str]],
) -> None:
    tree = Tree("x")
    # As they come, no two alike.
    all_of_them = [Problem("x", p.line, p.column, "", f"{n}{m}") for n, (p, m) in enumerate(found)]
    for number, (place, message) in enumerate(found):
        tree.add(place, (), f"{number}{message}")
    error = tree.refusal()
    in_order = sorted(all_of_them, key=lambda problem: problem.order)
    assert list(error.problems) == in_order[:MOST_PROBLEMS]
    assert error.count == len(found)


def test_a_refusal_says_how_many_and_shows_each_on_its_line() -> None:
    problems = [Problem("a\nb", 2, 1, "cpus", "x"), Problem("a\nb", 1, 3, "", "y")]
    error = InvalidBoxfile("a\nb", problems)
    assert str(error) == "a\\x0ab: 2 problems\n  a\\x0ab:1:3: y\n  a\\x0ab:2:1: cpus: x"
    assert str(InvalidBoxfile("x", problems[:1])).startswith("x: 1 problem\n")
    assert str(InvalidBoxfile("x", problems, 60)).endswith("\n  and 12 more")
