from __future__ import annotations

import pytest

from reconciler.boxfile.explain import fields_at
from reconciler.boxfile.known import ELSEWHERE, NOT_YET_FIELDS, unknown_key_message
from reconciler.boxfile.tree import Path

LEVELS: list[Path] = [
    (),
    ("mounts", 0),
    ("blueprint",),
    ("blueprint", "users", 0),
    ("blueprint", "write_files", 0),
]
MEANT = "is not a field; did you mean {}?"


@pytest.mark.parametrize("path", LEVELS)
def test_what_is_nearly_a_field_is_told(path: Path) -> None:
    fields = fields_at(path)
    for field in fields:
        for misspelt in (field.upper(), field + "s", field.replace("_", "-"), field[:-1] + "x"):
            if misspelt in fields or (len(field) < 4 and misspelt != field.upper()):
                continue
            message = unknown_key_message(misspelt, fields)
            assert message.startswith("is not a field; did you mean "), misspelt
            if misspelt.replace("-", "_").casefold() == field:
                assert message == MEANT.format(field)


@pytest.mark.parametrize(
    ("path", "key", "meant"),
    [
        ((), "image", "base"),
        ((), "memory", "ram_mib"),
        ((), "Memory", "ram_mib"),
        ((), "volumes", "mounts"),
        ((), "users", "blueprint.users"),
        ((), "read_only", "readonly"),
        (("mounts", 0), "read_only", "mode"),
        (("mounts", 0), "readonly", "mode"),
        (("mounts", 0), "source", "host"),
        (("mounts", 0), "destination", "guest"),
        (("blueprint", "users", 0), "user", "name"),
        (("blueprint", "write_files", 0), "permissions", "mode"),
    ],
)
def test_other_tools_words_are_known(path: Path, key: str, meant: str) -> None:
    assert unknown_key_message(key, fields_at(path)) == MEANT.format(meant)


def test_every_word_of_other_tools_means_a_field_somewhere() -> None:
    for key, words in ELSEWHERE.items():
        for word in words.split():
            levels = [fields_at(path) for path in LEVELS]
            assert any(word.partition(".")[0] in fields for fields in levels), (key, word)
            assert any(
                unknown_key_message(key, fields) == MEANT.format(word)
                for fields in levels
                if key not in fields
            ), (key, word)


@pytest.mark.parametrize("path", LEVELS[1:])
def test_words_of_the_top_mean_nothing_below(path: Path) -> None:
    fields = fields_at(path)
    for key in NOT_YET_FIELDS | {"version", "image", "memory"}:
        message = unknown_key_message(key, fields)
        assert message == "is not a field; fields are: " + ", ".join(sorted(fields)), key


def test_a_mount_and_a_file_have_no_name_of_a_sandbox() -> None:
    assert "file's name" in unknown_key_message("name", fields_at(()))
    for path in (("mounts", 0), ("blueprint",), ("blueprint", "write_files", 0)):
        assert "file's name" not in unknown_key_message("name", fields_at(path))
    assert "belong to root" in unknown_key_message("owner", fields_at(LEVELS[-1]))
    assert "belong to root" not in unknown_key_message("owner", fields_at(()))


@pytest.mark.parametrize("key", ["", "k" * 60_000, "\x1b[2J", "é" * 300])
def test_any_key_gets_a_short_answer(key: str) -> None:
    for path in LEVELS:
        message = unknown_key_message(key, fields_at(path))
        assert message.startswith("is not a field")
        assert message.isprintable()
        assert len(message) < 400
