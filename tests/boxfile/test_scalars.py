from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reconciler.boxfile.scalars import Unquoted, needs_quotes, plain_value


@pytest.mark.parametrize(
    "raw", ["busybox", "10G", "1.2.3", "127.0.0.1", "a:b", "/data", "é", "-", ".", "y"]
)
def test_text(raw: str) -> None:
    assert plain_value(raw) == raw


@pytest.mark.parametrize(("raw", "value"), [("0", 0), ("-7", -7), ("2048", 2048)])
def test_whole_numbers(raw: str, value: int) -> None:
    assert plain_value(raw) == value


def test_booleans_are_true_and_false_only() -> None:
    assert plain_value("true") is True
    assert plain_value("false") is False


@pytest.mark.parametrize(
    ("raw", "taken_for"),
    [
        *((raw, "a boolean") for raw in ["no", "No", "NO", "yes", "on", "off", "True"]),
        *((raw, "no value") for raw in ["", "~", "null", "Null"]),
        *((raw, "a number") for raw in ["0644", "0o644", "0x1F", "0b1", "1_000", "22:22", "1.10"]),
        *((raw, "a number") for raw in ["1e3", "1.5e+3", ".5", "-.inf", ".NaN", "+1", "9" * 5000]),
        *((raw, "a date") for raw in ["2024-01-01", "2024-13-45", "2024-01-01T00:00:00Z"]),
        ("<<", "a merge key"),
        ("=", "the default key"),
    ],
)
def test_what_yaml_takes_for_something_else(raw: str, taken_for: str) -> None:
    assert plain_value(raw) == Unquoted(raw, taken_for)


PLAIN = st.text("0123456789abcdefnyoYNOFTtrusl~.:+-_xbeTZ ", min_size=1, max_size=12)


@given(PLAIN)
def test_nothing_pyyaml_resolves_passes_for_text(raw: str) -> None:
    resolver = yaml.resolver.Resolver()
    # PyYAML's stubs leave this method out.
    tag = resolver.resolve(yaml.ScalarNode, raw, (True, False))  # type: ignore[no-untyped-call]
    if tag != "tag:yaml.org,2002:str":
        assert needs_quotes(raw)
