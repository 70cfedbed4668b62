from __future__ import annotations

import pytest

from reconciler.boxfile.names import RESERVED_NAMES, InvalidName, check_name, name_of


@pytest.mark.parametrize("name", ["a", "0", "web", "web-1", "a" * 63, "a--b"])
def test_names(name: str) -> None:
    assert check_name(name) == name


NO_NAMES = [
    *["", "-a", "a-", "A", "Web", "a_b", "a.b", ".", "..", "../x", "a/b", "a b", "a\n", "\n"],
    *["a" * 64, "ä", "\u0430", "a\0b", "-rf", "--help", "*", "a\u202eb"],
    *sorted(RESERVED_NAMES),
]


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        check_name(name)
    assert all(line.isprintable() for line in str(refusal.value).split("\n"))


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
    ],
)
def test_the_name_is_the_files(path: str, name: str | None) -> None:
    assert name_of(path) == name
