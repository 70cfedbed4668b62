from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.boxfile.names import (
    NAME_PATTERN,
    RESERVED_NAMES,
    InvalidName,
    check_name,
    name_of,
)


@pytest.mark.parametrize("name", ["a", "0", "web", "web-1", "a" * 63, "a--b"])
def test_names(name: str) -> None:
    assert check_name(name) == name


NO_NAMES = [
    *["", "-a", "a-", "A", "Web", "a_b", "a.b", ".", "..", "../x", "a/b", "a b", "a\n", "\n"],
    *["a" * 64, "a" * 300, "ä", "\u0430", "a\0b", "-rf", "--help", "*", "a\u202eb", "\uff57eb"],
    *["WEB", "weB", "\u0131", "\u212aa", "web\r", "web\t", "web\u2028", " web", "web ", ".web"],
    *["~", "~root", "a:b", "a,b", "a;b", "$(id)", "a\\b", "\udce9", "web.", "con.", "a" * 63 + "-"],
    *sorted(RESERVED_NAMES),
]


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        check_name(name)
    assert all(line.isprintable() for line in str(refusal.value).split("\n"))


@given(st.text(max_size=70) | st.from_regex(NAME_PATTERN, fullmatch=True))
def test_a_name_is_a_label_a_file_name_and_no_option(name: str) -> None:
    try:
        check_name(name)
    except InvalidName:
        assert not re.fullmatch("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name) or (
            name in RESERVED_NAMES
        )
        return
    assert name.isascii()
    assert name == name.casefold()
    assert not set(name) & set("/.\\ \n\0")
    assert name[0] != "-"
    assert len(name) <= 63


def test_reserved_names_would_be_names_otherwise() -> None:
    assert all(re.fullmatch(NAME_PATTERN, name) for name in RESERVED_NAMES)
    assert {"all", "boxd", "controller"} <= RESERVED_NAMES


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("web.Boxfile", "web"),
        ("web/Boxfile", "web"),
        ("a.b.Boxfile", "a.b"),
        ("web.Boxfile~", None),
        ("web.Boxfile.bak", None),
        (".web.Boxfile.swp", None),
        (".web.Boxfile", None),
        (".Boxfile", None),
        (".git/Boxfile", None),
        ("web/other.Boxfile", None),
        ("a/web/Boxfile", None),
        ("Boxfile", None),
        ("web.boxfile", None),
        ("4913", None),
        ("web/Boxfile~", None),
        ("Web.Boxfile", "Web"),
        ("../web.Boxfile", None),
        ("..Boxfile", None),
        ("web.Boxfile/Boxfile", "web.Boxfile"),
        ("web.Boxfile.Boxfile", "web.Boxfile"),
        ("web/.Boxfile", None),
        ("web/web.Boxfile", None),
        ("web.BOXFILE", None),
        ("web/boxfile", None),
        ("web\n.Boxfile", "web\n"),
        ("web.yaml", None),
        ("", None),
    ],
)
def test_the_name_is_the_files(path: str, name: str | None) -> None:
    assert name_of(path) == name
