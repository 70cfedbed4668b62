from __future__ import annotations

import base64
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.engine.command_log import LINE_BYTES, noted, parse, path_of
from reconciler.engine.contact import Contact
from reconciler.engine.home import open_home, sandbox_directory
from reconciler.errors import Busy
from reconciler.guest.protocol import Exec, Exit

# What a command line can hold: any bytes but NUL.
words = st.binary(max_size=9000).map(lambda data: os.fsdecode(data.replace(b"\0", b"?")))


def contact(home: Path) -> Contact:
    return Contact("web.1a", "web", 3, f"{home}/run/web.1a", b"t" * 32, {}, 0, "/", "")


def lines(home: Path) -> list[dict[str, Any]]:
    found = Path(path_of(home, "web")).read_bytes().splitlines()
    assert all(len(line) < LINE_BYTES for line in found)
    return [value for line in found if (value := parse(line)) is not None]


@pytest.fixture
def home(box_home: Path) -> Path:
    home = open_home()
    sandbox_directory(home, "web")
    return home


def test_a_command_leaves_a_line_before_and_one_after(home: Path) -> None:
    request = Exec(["sh", "-c", "x"], {"SECRET": "s3cr3t"}, cwd="/tmp", user="me")
    with noted(home, contact(home), "run", request) as entry:
        [start] = lines(home)
        entry.ended(Exit(-1, 15, timed_out=False), 5, 0)
    begun, end = lines(home)
    assert begun == start
    assert Path(path_of(home, "web")).stat().st_mode & 0o777 == 0o600
    about = {
        "vm": "web.1a",
        "incarnation": 3,
        "verb": "run",
        "argv": ["sh", "-c", "x"],
        "argc": 3,
        "user": "me",
        "cwd": "/tmp",
        "cut": False,
    }
    time = datetime.fromisoformat(start.pop("time"))
    assert abs(datetime.now(UTC) - time) < timedelta(seconds=30)
    assert start.pop("id") == end.pop("id")
    assert start == {"event": "start", **about}
    assert datetime.fromisoformat(end.pop("time")) >= time
    assert end.pop("duration_ms") >= 0
    ending = {"exit_code": 143, "signal": "SIGTERM", "timed_out": False}
    assert end == {"event": "end", **about, **ending, "stdout_bytes": 5, "stderr_bytes": 0}
    assert b"s3cr3t" not in Path(path_of(home, "web")).read_bytes()


@pytest.mark.parametrize(
    ("error", "told"), [(KeyboardInterrupt(2), "KeyboardInterrupt"), (Busy("In use."), "In use.")]
)
def test_what_kept_the_end_from_being_known_is_told_and_goes_on(
    home: Path, error: BaseException, told: str
) -> None:
    with pytest.raises(type(error)), noted(home, contact(home), "exec", Exec(["x"], {})):
        raise error
    end = lines(home)[-1]
    assert (end["exit_code"], end["error"]) == (None, told)


@given(st.lists(words, min_size=1, max_size=30), words, words)
def test_whatever_the_words_they_are_told_exactly_or_cut_and_said_so(
    argv: list[str], cwd: str, user: str
) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "sandboxes" / "web").mkdir(parents=True)
        with noted(home, contact(home), "exec", Exec(argv, {}, cwd=cwd, user=user)) as entry:
            entry.ended(Exit(0, 0, timed_out=False))
        for line in lines(home):
            given = [*argv, cwd, user]
            told = [bytes_of(word) for word in [*line["argv"], line["cwd"], line["user"]]]
            assert line["argc"] == len(argv)
            if not line["cut"]:
                assert told == [os.fsencode(word) for word in given]
            for word, whole in zip(line["argv"], argv, strict=False):
                assert os.fsencode(whole).startswith(bytes_of(word))


def bytes_of(word: str | dict[str, str]) -> bytes:
    return base64.b64decode(word["base64"]) if isinstance(word, dict) else word.encode()


def test_the_longest_command_fits_in_a_line(home: Path) -> None:
    for argv in (["\x01" * 200_000], ["x"] * 16384, ["", "\U0001f600" * 60_000], ["y" * 2590, "z"]):
        with noted(home, contact(home), "exec", Exec(argv, {})):
            pass
        line = lines(home)[-1]
        assert line["cut"]
        assert len(json.dumps(line["argv"])) > 1300


@pytest.mark.parametrize("trouble", ["gone", "a folder"])
def test_a_log_that_cannot_be_written_stops_no_command(home: Path, trouble: str) -> None:
    if trouble == "gone":
        (home / "sandboxes" / "web").rmdir()
    else:
        Path(path_of(home, "web")).mkdir()
    with noted(home, contact(home), "exec", Exec(["x"], {})) as entry:
        entry.ended(Exit(0, 0, timed_out=False))
    assert (home / "sandboxes" / "web").exists() is (trouble != "gone")


@pytest.mark.parametrize("line", [b"", b"{", b"[1]", b"1", b'{"a": 1}', b"[" * 100_000, b"\xff"])
def test_a_line_that_is_none_is_passed_over(line: bytes) -> None:
    assert parse(line) is None
