from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.boxfile.sizes import format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("1K", 1024), ("64M", 64 << 20), ("10G", 10 << 30), ("2T", 2 << 40)]
)
def test_units_are_powers_of_1024(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "G",
        "0G",
        "-1G",
        "+1G",
        "1.5G",
        "10g",
        "10GB",
        "1e9K",
        "4G\n",
        " 4G",
        "٣G",
        "9" * 5000 + "G",
    ],
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="like 10G"):
        parse_size(text)


@given(st.integers(1, 1 << 39))
def test_formatting_keeps_the_value(size_kib: int) -> None:
    assert parse_size(format_size(size_kib << 10)) == size_kib << 10


def test_an_odd_number_of_bytes_has_no_size() -> None:
    with pytest.raises(ValueError, match="1025 bytes"):
        format_size(1025)
