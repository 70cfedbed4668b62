"""No bytes make the loader raise anything but a refusal that can be shown."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.parser import PARSER, parse
from reconciler.boxfile.problems import InvalidBoxfile
from reconciler.boxfile.render import render
from reconciler.boxfile.text import decode
from reconciler.boxfile.titles import TITLES
from reconciler.boxfile.tree import Tree
from tests.boxfile.corpus import BAD, EXAMPLES, GOOD
from tests.boxfile.hostile import LEAST, full
from tests.boxfile.loading import outcome
from tests.boxfile.strategies import BOXFILES, TEXTS, TRICKY

CORPUS = [path.read_bytes() for path in (*GOOD, *BAD, *EXAMPLES)]
WORDS = sorted({part for path in TITLES for part in path.split(".")})

ALPHABET = "abno01:-?[]{},&*!|>'\"%@#<= \t\n\r~.\\_é\u2028\ufeff"
LINES = st.sampled_from(
    [
        *("base: alpine", "network: none", "env:", "  A: b", "cpus: 1", "- a", "---", "..."),
        *("mounts:", "- host: /", "  guest: /x", "blueprint:", "  users:", "  - name: a"),
        *("run:", "- |", "- >-", "    text", "%YAML 1.1", "&a", "*a", "!t", "? k", ": v", "# c"),
    ]
)
FRAGMENTS = st.sampled_from(
    [
        *(
            "[",
            "]",
            "{",
            "}",
            ",",
            ": ",
            "? ",
            "- ",
            "\n",
            "\r",
            " ",
            "  ",
            "\t",
            "#",
            "&a ",
            "*a ",
        ),
        *("!a ", "!!str ", "%TAG !a! b\n", "---\n", "...\n", "'", '"', "\\", "\\n", "|\n", ">\n"),
        *("<<: ", "~", "no", "9", "0:0", "1e9", "k", "é", "😀", "a/", "a.", "a-", "../", "a: b\n"),
        *("base: ", "env:\n", "mounts:\n", "run:\n", "blueprint:\n", "  users:\n", "  - ", "\n  "),
    ]
)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    outcome(data)


@settings(max_examples=300)
@given(st.lists(LINES | st.text(ALPHABET, max_size=12), max_size=12).map("\n".join))
def test_no_lines_raise_anything_else(text: str) -> None:
    outcome(text.encode())


def _from(data: bytes, at: int) -> bytes:
    return data[at : at + 80]


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """A text of the corpus in which pieces are lost, repeated or from another one."""
    data = draw(st.sampled_from(CORPUS))
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, min(len(data), 4000))] * 2)))
        other = draw(st.sampled_from(CORPUS))
        piece = draw(
            st.binary(max_size=4)
            | FRAGMENTS.map(str.encode)
            | st.just(b"")
            | st.just(data[start:end] * 2)
            | st.integers(0, len(other)).map(partial(_from, other))
        )
        data = data[:start] + piece + data[end:]
    return data


@settings(max_examples=500)
@given(mutations())
@pytest.mark.slow
def test_no_mutation_of_a_boxfile_raises_anything_else(data: bytes) -> None:
    outcome(data)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | TRICKY | st.dates()
KEYS = st.sampled_from(WORDS) | TEXTS | st.integers()
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=30,
)


@pytest.mark.slow
@settings(max_examples=300)
@given(TREES, st.sampled_from([None, True, False]))
def test_no_tree_raises_anything_else(tree: object, flow: bool | None) -> None:  # noqa: FBT001
    outcome(yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=True).encode())


@st.composite
def misfits(draw: st.DrawFn) -> object:
    """A good Boxfile's data with anything in one place, however deep."""
    data = yaml.safe_load(render(draw(BOXFILES)))
    holder: Any = data
    while True:
        if isinstance(holder, list):
            key: Any = draw(st.integers(0, len(holder) - 1))
            inner = holder[key]
        else:
            key = draw(st.sampled_from(list(holder)) | KEYS)
            inner = holder.get(key)
        if isinstance(inner, list | dict) and inner and draw(st.booleans()):
            holder = inner
        else:
            holder[key] = draw(TREES)
            return data


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(misfits())
def test_no_wrong_value_in_a_good_boxfile_raises_anything_else(data: object) -> None:
    outcome(yaml.safe_dump(data, allow_unicode=True).encode())


@settings(max_examples=40)
@given(st.lists(FRAGMENTS, min_size=1, max_size=5).map("".join), FRAGMENTS, st.booleans())
def test_no_repetition_takes_a_second(unit: str, start: str, after: bool) -> None:  # noqa: FBT001
    data = full(unit, head=(LEAST if after else "") + start)
    began = time.process_time()
    outcome(data)
    assert time.process_time() - began < 1


def seen(tree: Tree) -> object:
    """What a tree says of a text: all of it, or only that it is refused."""
    if tree.problems or not tree.complete:
        return None
    # The place of what is not there is another to each.
    places = {path: place for path, place in tree.places.items() if place.unquoted != ""}
    return tree.value, places, tree.keys


def both_see(text: str) -> tuple[object, object]:
    """What libyaml and PyYAML's own parser make of a text."""
    return seen(parse(text, "x", PARSER)), seen(parse(text, "x", yaml.SafeLoader))


def check_meaning(text: str) -> None:
    """Neither may see anything else than the other; what only one takes for YAML does no harm.

    `[a?]` and `|#` are YAML to libyaml only, `{a:}` and a tab before a block's text only to PyYAML.
    """
    fast, pure = both_see(text)
    if fast is not None and pure is not None:
        assert fast == pure


@settings(max_examples=300)
@given(st.lists(LINES | st.text(ALPHABET.strip("\u2028\ufeff"), max_size=12)).map("\n".join))
def test_no_text_means_something_else_to_the_pure_parser(text: str) -> None:
    check_meaning(text)


@settings(max_examples=300)
@given(mutations())
@pytest.mark.slow
def test_no_mutation_means_something_else_to_the_pure_parser(data: bytes) -> None:
    text = data.decode(errors="ignore")
    # Without what is refused before either of them sees it.
    check_meaning("".join(each for each in text if each.isprintable() or each in "\t\r\n"))


@given(BOXFILES)
@pytest.mark.slow
def test_a_rendered_boxfile_is_the_same_to_both_parsers(boxfile: Boxfile) -> None:
    fast, pure = both_see(render(boxfile))
    assert fast is not None
    assert fast == pure


@pytest.mark.parametrize("path", [*GOOD, *BAD, *EXAMPLES], ids=lambda path: path.name)
def test_the_corpus_is_the_same_to_both_parsers(path: Path) -> None:
    try:
        text = decode(path.read_bytes(), path.name)
    except InvalidBoxfile:
        return
    fast, pure = both_see(text)
    assert fast == pure
