from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.linux import quick_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
@pytest.mark.slow
def test_it_says_and_reads_what_json_does(value: dict[str, object]) -> None:
    text = quick_json.dumps(value)
    assert text == json.dumps(value)
    assert quick_json.loads(text.encode()) == value


@given(st.binary() | st.text(alphabet='{}[]",:0123456789.eE+-tfnaulrsINy \\\n').map(str.encode))
def test_whatever_it_is_given_the_answer_is_that_of_json(data: bytes) -> None:
    def outcome(loads: object) -> tuple[str, object]:
        try:
            return "value", repr(loads(data))  # type: ignore[operator]
        except ValueError as error:
            return "error", type(error)

    assert outcome(quick_json.loads) == outcome(lambda text: json.loads(text.decode()))


def test_nesting_without_end_is_an_error() -> None:
    with pytest.raises(RecursionError):
        quick_json.loads(b"[" * 200_000)


def test_what_is_nothing_for_json_is_refused() -> None:
    with pytest.raises(TypeError):
        quick_json.dumps({"a": 1.5})
