from __future__ import annotations

import pytest
import yaml

from reconciler.boxfile import parser
from reconciler.boxfile.loader import load, read
from reconciler.boxfile.model import Blueprint
from reconciler.boxfile.problems import MOST_PROBLEMS, InvalidBoxfile, Problem
from reconciler.boxfile.text import MAX_BYTES
from tests.boxfile.loading import LEAST, problems_of

FILE = "blueprint: {{write_files: [{{path: /x, content: a, mode: '{mode}'}}]}}"


def test_least_boxfile_gets_the_documented_defaults() -> None:
    assert dict(load(LEAST, source="x")) == {
        "version": 1,
        "base": "builtin:busybox",
        "backend": "qemu",
        "isolation": "standard",
        "cpus": 2,
        "ram_mib": 2048,
        "network": "none",
        "passt": False,
        "readonly": False,
        "timeout_seconds": 0,
        "warm": 0,
        "warmup": [],
        "packages": [],
        "run": [],
        "env": {},
        "mounts": [],
        "blueprint": Blueprint(users=[], write_files=[], runcmd=[]),
        "pkgmgr": None,
        "seccomp": None,
        "data_size": None,
        "state": "running",
        "on_drift": "alert",
        "protect": False,
    }


def test_the_network_is_bridge_unless_told_otherwise() -> None:
    assert load(b"base: alpine\nbackend: krun\n", source="x").network == "bridge"


def test_nested_defaults() -> None:
    text = b"""\
base: alpine
backend: krun
mounts: [{host: /a, guest: /x}]
blueprint: {users: [{name: a}], write_files: [{path: /x, content: ""}]}
"""
    boxfile = load(text, source="x")
    assert boxfile.mounts[0].model_dump() == {
        "host": "/a",
        "guest": "/x",
        "mode": "ro",
        "follow_symlink": False,
        "risky": False,
    }
    assert boxfile.blueprint.users[0].model_dump() == {
        "name": "a",
        "shell": "/bin/sh",
        "sudo": False,
    }
    assert boxfile.blueprint.write_files[0].mode == "0644"


def test_strict_stops_on_drift_unless_told_otherwise() -> None:
    assert load(LEAST + b"isolation: strict\n", source="x").on_drift == "stop"
    assert load(LEAST + b"isolation: strict\non_drift: alert\n", source="x").on_drift == "alert"


def test_windows_text_and_json_mean_the_same_as_plain_text() -> None:
    data = b'\xef\xbb\xbfbase: builtin:busybox\r\nenv:\r\n  A: "b"\r\nnetwork: none\r\n'
    plain = LEAST + b"env: {A: b}\n"
    as_json = b'{"base": "builtin:busybox", "network": "none", "env": {"A": "b"}}'
    assert load(data, source="x") == load(plain, source="x") == load(as_json, source="x")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("data_size: 1024M", "data_size: 1G"),
        (FILE.format(mode="755"), FILE.format(mode="0755")),
        ("blueprint: {}", "run: []"),
        ("env: {A: a, B: b}", "env: {B: b, A: a}"),
    ],
)
def test_what_means_the_same_is_equal(one: str, other: str) -> None:
    assert load(LEAST + one.encode(), source="x") == load(LEAST + other.encode(), source="y")


def test_a_size_is_known_in_bytes() -> None:
    assert load(LEAST + b"data_size: 1G\n", source="x").data_size_bytes == 1 << 30


@pytest.mark.parametrize(
    ("data", "place", "part"),
    [
        (b"", (1, 1), "is empty"),
        (b"\n\n  \n", (1, 1), "is empty"),
        (b"---\n...\n", (2, 1), "is empty"),
        (b"~\n", (1, 1), "is empty"),
        (b"\xef\xbb\xbf", (1, 1), "is empty"),
        (b"[]\n", (1, 1), "is not a mapping"),
        (b"{\n", (2, 1), "is not YAML"),
        (b"\0" * 4096, (1, 1), "U+0000"),
        (LEAST + b"# \x1b[31m\n", (3, 3), "U+001B"),
        (LEAST + "# ü\x85\n".encode(), (3, 4), "U+0085"),
        (b"\xef\xbb\xbf\xef\xbb\xbf" + LEAST, (1, 1), "U+FEFF"),
        (b"base: \xff\n", (1, 7), "byte 0xff is not UTF-8"),
        (b"# \xc3\xbc\xe2\n", (1, 4), "byte 0xe2 is not UTF-8"),
        (b"# \xed\xa0\x80\n", (1, 3), "not UTF-8"),
        (b"# \xc0\xaf\n", (1, 3), "not UTF-8"),
        (LEAST.decode().encode("utf-16"), (1, 1), "UTF-16"),
        (LEAST.decode().encode("utf-16-be"), (1, 1), "U+0000"),
        (LEAST.decode().encode("utf-32"), (1, 1), "UTF-32"),
        (b"#" * (MAX_BYTES + 1), (1, 1), "larger than 256 KiB"),
        (b"---\n---\n" + LEAST, (2, 1), "second document"),
        (LEAST + b"env: {A: " + b"x" * ((64 << 10) + 1) + b"}\n", (3, 10), "longer than 64 Ki"),
        (LEAST + b"run: [" + b"a," * 10_000 + b"]\n", (3, 19_993), "more than 10000 values"),
    ],
)
def test_what_is_no_text_is_refused_at_its_place(
    data: bytes, place: tuple[int, int], part: str
) -> None:
    problem = problems_of(data)[0]
    assert part in problem.message
    assert (problem.line, problem.column) == place


def test_a_text_of_exactly_the_full_size_loads() -> None:
    load(LEAST + b"#" * (MAX_BYTES - len(LEAST)), source="x")


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_are_counted_whatever_ends_them(end: bytes) -> None:
    text = end.join([b"", b"# c", *LEAST.splitlines(), b"", b"env:", b"  A: no", b""])
    (problem,) = problems_of(text)
    assert (problem.line, problem.column, problem.path) == (7, 6, "env.A")


def test_messages_cannot_drive_a_terminal_or_fill_a_screen() -> None:
    with pytest.raises(InvalidBoxfile) as refusal:
        load(b'"\\e[2J\\n' + b"k" * 900 + b'": 1\n', source="evil\n\x1b[2Jname.Boxfile")
    message = str(refusal.value)
    assert "\x1b" not in message
    assert len(message) < 2000
    assert all(line.isprintable() for line in message.split("\n"))


@pytest.mark.parametrize("text", [b"run: *%s\n", b"run: &%s x\n", b"run: !%s x\n", b"? %s\n: 1\n"])
def test_long_names_are_cut(text: bytes) -> None:
    for problem in problems_of(LEAST + text % (b"k" * 60_000)):
        assert len(str(problem)) < 600


def test_only_the_first_problems_are_told_and_all_are_counted() -> None:
    keys = b"".join(b"k%d: 1\n" % number for number in range(200))
    bad = b"run: [" + b"1, " * 300 + b"]\nwarmup: [" + b"&a x, " * 100 + b"]\n"
    with pytest.raises(InvalidBoxfile) as refusal:
        load(keys + bad + b"cpus: 0\n" + LEAST, source="x")
    assert len(refusal.value.problems) == MOST_PROBLEMS
    assert [problem.line for problem in refusal.value.problems] == [*range(1, MOST_PROBLEMS + 1)]
    # 200 keys, 300 numbers, 100 anchors and cpus.
    assert refusal.value.count == 601
    assert str(refusal.value).endswith(f"and {601 - MOST_PROBLEMS} more")


def test_what_stands_first_is_told_whatever_found_it() -> None:
    found = problems_of(b"cpus: 0\n" + LEAST + b"run: [" + b"&a x, " * 200 + b"]\n")
    assert found[0].path == "cpus"
    assert len(found) == MOST_PROBLEMS
    found = problems_of(LEAST + b"run: [" + b"1, " * 200 + b"]\ncpus: 0\n")
    assert [each.path for each in found] == [f"run[{index}]" for index in range(MOST_PROBLEMS)]


def test_env_is_limited_as_a_whole() -> None:
    data = LEAST + b"env:\n" + b"".join(b"  V%d: %s\n" % (n, b"x" * 60_000) for n in range(2))
    (problem,) = problems_of(data)
    assert (problem.line, problem.path) == (4, "env")
    assert "at most 65536" in problem.message


class Unreadable(bytes):
    """Bytes that fail while they are looked at, as no bytes of a file do."""

    __slots__ = ()

    def removeprefix(self, prefix: object, /) -> bytes:
        raise RuntimeError(prefix)


def test_whatever_fails_inside_is_the_files_problem() -> None:
    (problem,) = problems_of(Unreadable(LEAST))
    assert str(problem) == (
        "web.Boxfile:1:1: box itself failed on this text (RuntimeError); please report it"
    )


def test_problems_that_the_text_does_not_show_have_places_too() -> None:
    text = LEAST.replace(b"network: none", b"backend: krun") + b"mounts:\n- {guest: /x, host: /}\n"
    loaded = read(text, source="web.Boxfile")
    assert loaded.problem(("mounts", 0, "host"), "is a link") == Problem(
        "web.Boxfile", 4, 21, "mounts[0].host", "is a link"
    )
    # What was left out has the place of what it was left out of.
    assert loaded.problem(("mounts", 0, "mode"), "x").column == 3
    assert loaded.problem(("cpus",), "x").line == 1
    assert [str(note) for note in loaded.notes] == [
        "web.Boxfile:2:10: backend: this version of box does not have krun yet; it has qemu"
    ]


def test_the_fast_parser_is_in_use() -> None:
    assert parser.PARSER is yaml.CSafeLoader
