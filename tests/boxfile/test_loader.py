from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.boxfile import parser
from reconciler.boxfile.loader import load
from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.problems import InvalidBoxfile, Problem
from reconciler.boxfile.text import MAX_BYTES
from tests.boxfile.corpus import BAD, EXAMPLES, GOOD, expected

LEAST = b"base: builtin:busybox\nnetwork: none\n"


def problems_of(data: bytes) -> tuple[Problem, ...]:
    with pytest.raises(InvalidBoxfile) as refusal:
        load(data, source="web.Boxfile")
    return refusal.value.problems


@pytest.mark.parametrize("path", [*GOOD, *EXAMPLES], ids=lambda path: path.name)
def test_good_corpus_and_shipped_examples_load(path: Path) -> None:
    load(path.read_bytes(), source=path.name)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name)
def test_bad_corpus_gives_exactly_the_announced_problems(path: Path) -> None:
    found = problems_of(path.read_bytes())
    assert [str(problem).removeprefix("web.Boxfile:") for problem in found] == expected(path)


def test_least_boxfile_gets_the_documented_defaults() -> None:
    assert load(LEAST, source="x").model_dump() == {
        "version": 1,
        "base": "builtin:busybox",
        "backend": "qemu",
        "isolation": "standard",
        "cpus": 2,
        "ram_mib": 2048,
        "network": "none",
        "readonly": False,
        "timeout_seconds": 0,
        "env": {},
        "data_size": None,
        "state": "running",
        "on_drift": "alert",
        "protect": False,
    }


def test_strict_stops_on_drift_unless_told_otherwise() -> None:
    assert load(LEAST + b"isolation: strict\n", source="x").on_drift == "stop"
    assert load(LEAST + b"isolation: strict\non_drift: alert\n", source="x").on_drift == "alert"


def test_windows_text_and_json_mean_the_same_as_plain_text() -> None:
    data = b'\xef\xbb\xbfbase: builtin:busybox\r\nenv:\r\n  A: "b"\r\nnetwork: none\r\n'
    plain = LEAST + b"env: {A: b}\n"
    as_json = b'{"base": "builtin:busybox", "network": "none", "env": {"A": "b"}}'
    assert load(data, source="x") == load(plain, source="x") == load(as_json, source="x")


def test_equal_sizes_are_equal_boxfiles() -> None:
    one, other = (load(LEAST + b"data_size: " + size, source="x") for size in (b"1024M\n", b"1G\n"))
    assert one == other
    assert one.data_size_bytes == 1 << 30


@pytest.mark.parametrize(
    ("data", "place", "part"),
    [
        (b"", (1, 1), "is empty"),
        (b"\0" * 4096, (1, 1), "U+0000"),
        (LEAST + b"# \x1b[31m\n", (3, 3), "U+001B"),
        (LEAST + "# ü\x85\n".encode(), (3, 4), "U+0085"),
        (b"base: \xff\n", (1, 7), "byte 0xff is not UTF-8"),
        (b"# \xc3\xbc\xe2\n", (1, 4), "byte 0xe2 is not UTF-8"),
        (b"# \xed\xa0\x80\n", (1, 3), "not UTF-8"),
        (LEAST.decode().encode("utf-16"), (1, 1), "UTF-16"),
        (LEAST.decode().encode("utf-32"), (1, 1), "UTF-32"),
        (b"#" * (MAX_BYTES + 1), (1, 1), "larger than 256 KiB"),
        (b"---\n---\n" + LEAST, (2, 1), "second document"),
    ],
)
def test_what_is_no_text_is_refused_at_its_place(
    data: bytes, place: tuple[int, int], part: str
) -> None:
    (problem,) = problems_of(data)
    assert (problem.line, problem.column) == place
    assert part in problem.message


FIELDS_OF_TEXT = ["base", "backend", "isolation", "network", "data_size", "state", "on_drift"]


@pytest.mark.parametrize("field", [*FIELDS_OF_TEXT, "env.K", "env key"])
@pytest.mark.parametrize("break_", ["\\n", "\\r", "\\L", "\\P", "\\N", "\\0", "\\e", "\\x7f"])
def test_no_field_takes_a_line_break_or_control_character(field: str, break_: str) -> None:
    good = {"base": "alpine", "data_size": "4G", "state": "running"}.get(field, "none")
    value = f'"{good}{break_}RUN id"'
    match field:
        case "env.K":
            text = f"base: alpine\nnetwork: none\nenv: {{K: {value}}}\n"
        case "env key":
            text = f"base: alpine\nnetwork: none\nenv: {{{value}: x}}\n"
        case _:
            lines = {"base": "alpine", "network": "none", field: value}
            text = "".join(f"{key}: {value}\n" for key, value in lines.items())
    found = problems_of(text.encode())
    assert all("\n" not in str(problem) and str(problem).isprintable() for problem in found)


def test_messages_cannot_drive_a_terminal_or_fill_a_screen() -> None:
    with pytest.raises(InvalidBoxfile) as refusal:
        load(b'"\\e[2J\\n' + b"k" * 5000 + b'": 1\n', source="evil\n\x1b[2Jname.Boxfile")
    message = str(refusal.value)
    assert "\x1b" not in message
    assert len(message) < 2000
    assert all(line.isprintable() for line in message.split("\n"))


def test_env_is_limited_as_a_whole() -> None:
    data = LEAST + b"env:\n" + b"".join(b"  V%d: %s\n" % (n, b"x" * 60_000) for n in range(2))
    (problem,) = problems_of(data)
    assert (problem.line, problem.path) == (4, "env")
    assert "at most 65536" in problem.message


# Each once hung, killed or filled some YAML reader, or takes a path of its own through ours.
HOSTILE = {
    "brackets": b"[",
    "braces": b"{",
    "dashes": b"- ",
    "questions": b"? ",
    "nested maps": b"a:\n ",
    "open quotes": b'"',
    "anchors": b"&a ",
    "aliases": b"*a ",
    "tags": b"!a ",
    "directives": b"%YAML 1.1\n",
    "tabs": b"\t",
    "tabs after dashes": b"- \t\n",
    "comments": b"# \n",
    "documents": b"---\n",
    "merge keys": b"<<: 1\n",
    "equal keys": b"a: 1\n",
    "pipes": b"|\n",
    "lines": b"a\n",
    "carriage returns": b"\r",
    "complex keys": b"? [a]\n: b\n",
    "image": b"a-",
    "digits": b"9",
}


@pytest.mark.parametrize("unit", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_text_of_full_size_takes_a_second_or_100_mib(unit: bytes, tmp_path: Path) -> None:
    # In a process of its own: a kill inside libyaml's binding would take pytest along, and the
    # limits are the kernel's. 100 MiB of data comes on top of what an idle interpreter has.
    file = tmp_path / "hostile.Boxfile"
    file.write_bytes((b"base: " if unit in {b"a-", b"9"} else b"") + unit * (MAX_BYTES // 8))
    file.write_bytes(file.read_bytes()[:MAX_BYTES])
    script = """
import resource, sys
from reconciler.boxfile.loader import load
from reconciler.boxfile.problems import InvalidBoxfile
data = open(sys.argv[1], "rb").read()
before = resource.getrusage(resource.RUSAGE_SELF)
try:
    load(data, source="x")
except InvalidBoxfile:
    after = resource.getrusage(resource.RUSAGE_SELF)
    print(after.ru_utime - before.ru_utime, (after.ru_maxrss - before.ru_maxrss) / 1024)
"""
    run = subprocess.run(
        [sys.executable, "-c", script, str(file)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    cpu_seconds, grown_mib = map(float, run.stdout.split())
    assert cpu_seconds < 1
    assert grown_mib < 100


def outcome(data: bytes) -> Boxfile | None:
    """Load, letting nothing but the documented error through."""
    problems: tuple[Problem, ...] = ()
    try:
        return load(data, source="x")
    except InvalidBoxfile as error:
        problems = error.problems
    assert problems
    assert list(problems) == sorted(problems, key=lambda problem: problem.order)
    return None


ALPHABET = "abno01:-?[]{},&*!|>'\"%@#<= \t\n\r~.\\_é\u2028\ufeff"
LINES = st.sampled_from(
    ["base: alpine", "network: none", "env:", "  A: b", "cpus: 1", "- a", "---"]
)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    outcome(data)


@settings(max_examples=300)
@given(st.lists(LINES | st.text(ALPHABET, max_size=12), max_size=8).map("\n".join))
def test_libyaml_and_the_pure_parser_agree(text: str) -> None:
    with_libyaml = outcome(text.encode())
    fast, parser.PARSER = parser.PARSER, yaml.SafeLoader
    try:
        assert outcome(text.encode()) == with_libyaml
    finally:
        parser.PARSER = fast


def test_the_fast_parser_is_in_use() -> None:
    assert parser.PARSER is yaml.CSafeLoader
