"""What `box explain`, a new Boxfile and docs/boxfile.md tell is what the loader does."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from reconciler.boxfile.changes import FIELDS, Effect
from reconciler.boxfile.loader import load, read
from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.page import reference_page
from reconciler.boxfile.problems import InvalidBoxfile
from reconciler.boxfile.reference import Entry, UnknownField, entries, find
from reconciler.boxfile.snippets import snippet
from reconciler.boxfile.support import LACKS
from reconciler.boxfile.template import template, title, with_schema

PAGE = Path(__file__).parents[2] / "docs" / "boxfile.md"
TOP = [entry for entry in entries() if "." not in entry.path]
LEAST = "base: docker.io/library/debian:12\nnetwork: none\nbackend: podman\n"


def loaded(text: str) -> dict[str, Any]:
    return load(text.encode(), source="").model_dump()


def within(path: str, value: object) -> dict[str, Any]:
    """A Boxfile's fields with just this one, and what the mappings around it need."""
    needed = {
        "mounts": {"host": "/srv", "guest": "/srv"},
        "blueprint.users": {"name": "somebody"},
        "blueprint.write_files": {"path": "/x", "content": ""},
    }
    above, _, name = path.rpartition(".")
    if not above:
        return {name: value}
    inner = {**needed.get(above, {}), name: value}
    return within(above, [inner] if above in needed else inner)


def text_with(path: str, value: object) -> str:
    (field,) = within(path, value).items()
    rest = "\n".join(line for line in LEAST.splitlines() if not line.startswith(f"{field[0]}:"))
    return f"{rest}\n{snippet(*field)}\n"


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.path)
def test_every_example_is_loaded_as_it_is_shown(entry: Entry) -> None:
    for example in entry.examples:
        text = text_with(entry.path, example)
        found: Any = loaded(text)
        for name in entry.path.split("."):
            found = found[0] if isinstance(found, list) else found
            found = found[name]
        assert contains(found, example), text


def contains(found: object, example: object) -> bool:
    """Whether a value is the example, but for fields that the example leaves out."""
    if isinstance(example, dict):
        return isinstance(found, dict) and all(
            contains(found[key], value) for key, value in example.items()
        )
    if isinstance(example, list):
        return isinstance(found, list) and all(
            contains(one, other) for one, other in zip(found, example, strict=True)
        )
    return found == example


@pytest.mark.parametrize("entry", TOP, ids=lambda entry: entry.path)
def test_a_default_is_what_the_loader_takes(entry: Entry) -> None:
    least = Boxfile(base="builtin:busybox").model_dump()
    if entry.required:
        assert entry.default_words == "required"
        with pytest.raises(InvalidBoxfile, match="is required"):
            load(b"network: none\n", source="")
    elif entry.default is not None:
        want = {} if entry.default == {} and entry.path != "env" else entry.default
        assert contains(least[entry.path], want)
    elif entry.path == "on_drift":
        assert entry.default_words == "stop under isolation strict, else alert"
        assert least["on_drift"] == "alert"
        assert Boxfile(base="builtin:busybox", isolation="strict").on_drift == "stop"
    else:
        assert least[entry.path] is None
        assert entry.default_words not in ("", "None", "none")


NUMBERS = [entry for entry in entries() if entry.allowed.startswith("a whole number from ")]


@pytest.mark.parametrize("entry", NUMBERS, ids=lambda entry: entry.path)
def test_the_bounds_told_are_the_loaders(entry: Entry) -> None:
    least, most = (int(number) for number in re.findall("[0-9]+", entry.allowed))
    for good in (least, most):
        assert loaded(text_with(entry.path, good))[entry.path] == good
    for bad in (least - 1, most + 1):
        with pytest.raises(InvalidBoxfile):
            loaded(text_with(entry.path, bad))


WORDS = [entry for entry in TOP if re.fullmatch(r"[a-z]+(, [a-z]+)* or [a-z]+", entry.allowed)]


@pytest.mark.parametrize("entry", WORDS, ids=lambda entry: entry.path)
def test_the_words_told_are_all_the_loader_takes(entry: Entry) -> None:
    words = re.split(", | or ", entry.allowed)
    for word in words:
        value = {"true": True, "false": False}.get(word, word)
        assert loaded(text_with(entry.path, value))[entry.path] == value
    with pytest.raises(InvalidBoxfile) as caught:
        loaded(text_with(entry.path, "other"))
    if "true" not in words:
        assert entry.allowed in caught.value.problems[0].message


def test_words_and_numbers_are_most_of_the_fields() -> None:
    assert len(NUMBERS) == 4
    assert {entry.path for entry in WORDS} >= {"backend", "network", "state", "on_drift", "protect"}


def test_what_a_backend_cannot_do_is_told_at_each_field() -> None:
    told = {(entry.path, *each) for entry in TOP for each in entry.not_on}
    assert told == {
        (lack.field, backend, lack.message) for backend, lacks in LACKS.items() for lack in lacks
    }
    assert find("mounts.host").not_on == find("mounts").not_on != ()
    assert find("cpus").not_on == ()


@pytest.mark.parametrize("entry", TOP, ids=lambda entry: entry.path)
def test_the_effect_told_is_the_plans(entry: Entry) -> None:
    effect = FIELDS[entry.path].effect
    first = re.split("[: ]", entry.effect)[0]
    assert first in {str(each) for each in Effect}
    if isinstance(effect, Effect):
        assert first == str(effect)
    else:
        assert first in {"rebuild", "restart"}


@pytest.mark.parametrize(
    ("path", "wider"),
    [
        ("network", "to bridge"),
        ("isolation", "to standard"),
        ("readonly", "to false"),
        ("passt", "to true"),
        ("backend", "to krun or podman"),
        ("on_drift", "to alert"),
        ("cpus", ""),
        ("protect", ""),
        ("mounts.mode", ""),
    ],
)
def test_the_widening_changes_told_are_the_plans(path: str, wider: str) -> None:
    assert find(path).wider == wider


def test_every_field_that_can_widen_says_how() -> None:
    never = FIELDS["cpus"].widens
    samples = [None, 1, "a.json", [{"host": "/", "guest": "b", "mode": "ro"}], [], True, False]
    for entry in TOP:
        if entry.wider or FIELDS[entry.path].widens is never:
            continue
        values = [*samples, *re.split(", | or ", entry.allowed)]
        widens = FIELDS[entry.path].widens
        assert not any(widens(one, other) for one in values for other in values if one != other)
    assert find("seccomp").wider
    assert find("mounts").wider


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("cpus", "cpus"),
        ("mounts.host", "mounts.host"),
        ("mounts[3].host", "mounts.host"),
        ("blueprint.users[0].name", "blueprint.users.name"),
        ("run[12]", "run"),
        ("env.PATH", "env"),
        ("env", "env"),
    ],
)
def test_a_field_is_found_as_problems_name_it(asked: str, found: str) -> None:
    assert find(asked).path == found


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("cpu", "cpus"),
        ("CPUS", "cpus"),
        ("memory", "ram_mib"),
        ("ram_mb", "ram_mib"),
        ("host", "mounts.host"),
        ("mode", "mounts.mode or blueprint.write_files.mode"),
        ("users", "blueprint.users"),
        ("mounts.hots", "host"),
        ("mounts.source", "host"),
        ("blueprint.user", "users"),
        ("network.", "network"),
    ],
)
def test_a_field_that_is_none_is_met_with_what_was_meant(asked: str, meant: str) -> None:
    with pytest.raises(UnknownField, match=re.escape(f"did you mean {meant}?")):
        find(asked)


@pytest.mark.parametrize("asked", ["", ".", "x.y", "egress", "\x1b[31m", "x" * 10_000, "[0]", "é"])
def test_nonsense_is_one_message(asked: str) -> None:
    with pytest.raises(UnknownField) as caught:
        find(asked)
    assert str(caught.value).isprintable() or "\n" in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_text_of_several_lines_is_written_as_it_is() -> None:
    assert snippet("content", "one\ntwo\n") == "content: |\n  one\n  two"
    assert snippet("mode", "0644") == 'mode: "0644"'
    assert snippet("env", {"A": "no"}) == 'env:\n  A: "no"'


class TestTemplate:
    TEXT = template("web", ".boxfile.schema.json")

    def fields_offered(self) -> list[str]:
        return re.findall(r"^#([a-z_]+):", self.TEXT, re.MULTILINE)

    def test_it_is_good_without_a_note(self) -> None:
        found = read(self.TEXT.encode(), source="")
        assert found.notes == ()
        assert (found.boxfile.base, found.boxfile.network) == ("builtin:busybox", "none")
        assert (found.boxfile.data_size, found.boxfile.isolation) == ("10G", "strict")

    def test_what_stands_in_comments_are_the_defaults(self) -> None:
        values = {"cpus", "ram_mib", "readonly", "timeout_seconds", "state", "on_drift", "protect"}
        assert values <= set(self.fields_offered())
        said = re.sub(f"^#(?=({'|'.join(values)}):)", "", self.TEXT, flags=re.MULTILINE)
        assert said.count("\n#") == self.TEXT.count("\n#") - len(values)
        boxfile = load(said.encode(), source="")
        assert boxfile == load(self.TEXT.encode(), source="")
        assert values <= boxfile.model_fields_set

    def test_all_comments_together_are_good(self) -> None:
        everything = re.sub("^#(?! [^ ])", "", self.TEXT, flags=re.MULTILINE)
        everything = everything.replace("builtin:busybox\n", "docker.io/library/debian:12\n")
        boxfile = load(everything.encode(), source="")
        assert set(self.fields_offered()) <= boxfile.model_fields_set

    def test_only_what_is_not_for_beginners_is_left_out(self) -> None:
        said = {*self.fields_offered(), *load(self.TEXT.encode(), source="").model_fields_set}
        left_out = {"backend", "passt", "warm", "warmup", "mounts", "pkgmgr", "seccomp"}
        assert Boxfile.model_fields.keys() - said == left_out

    def test_every_field_is_explained_above_it(self) -> None:
        lines = self.TEXT.splitlines()
        for number, line in enumerate(lines):
            if re.match("#?[a-z_]+:", line):
                assert lines[number - 1].startswith("# "), line
        assert max(map(len, lines)) <= 100

    def test_it_begins_with_what_editors_look_for(self) -> None:
        first, second, third = self.TEXT.splitlines()[:3]
        assert first == "# yaml-language-server: $schema=.boxfile.schema.json"
        assert second == "# vim: ft=yaml"
        assert third.startswith("# Sandbox web.")


def test_lines_for_editors_are_replaced_or_added() -> None:
    old = "# yaml-language-server: $schema=../a.json\n# vim: ft=yaml\n# Title.\nbase: x\n"
    new = "# yaml-language-server: $schema=b.json\n# vim: ft=yaml\n# Title.\nbase: x\n"
    assert with_schema(old, "b.json") == new
    assert with_schema("# Title.\nbase: x\n", "b.json") == new
    assert title(old) == title(new) == "Title."
    assert title("base: x\n") == ""


class TestPage:
    def test_the_committed_page_is_the_models(self) -> None:
        if os.environ.get("BOX_UPDATE_SCHEMAS") == "1":
            PAGE.parent.mkdir(exist_ok=True)
            PAGE.write_text(reference_page(), encoding="utf-8")
        assert PAGE.read_text(encoding="utf-8") == reference_page(), (
            "run the tests with BOX_UPDATE_SCHEMAS=1 and commit the result"
        )

    def test_every_field_has_a_row_and_a_section(self) -> None:
        text = reference_page()
        headings = re.findall("^### (.*)$", text, re.MULTILINE)
        assert headings == [entry.path for entry in entries()]
        anchors = {heading.replace(".", "") for heading in headings}
        links = re.findall(r"^\| \[`([^`]+)`\]\(#([^)]+)\)", text, re.MULTILINE)
        assert [path for path, _ in links] == headings
        assert {anchor for _, anchor in links} == anchors

    def test_it_holds_the_promise_and_the_limits(self) -> None:
        text = " ".join(reference_page().split())
        assert "A box of major version N reads every Boxfile version up to N" in text
        for limit in ("256 KiB", "16 levels", "10000 values", "64 Ki"):
            assert limit in text
