"""`box logs` over logs that were written beforehand: what it shows, and how it follows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engine import command_log, console_log
from reconciler.engine.contact import Contact
from reconciler.engine.home import open_home, sandbox_directory
from reconciler.guest.protocol import Exec, Exit
from reconciler.linux.appending import append_line
from tests.surfaces.test_main import REPO, box

HOSTILE = b"\x1b]0;owned\x07\x9b2J\rtab\there\xff \xe2\x80\xae\r\n"


@pytest.fixture
def home(box_home: Path) -> Path:
    home = open_home()
    sandbox_directory(home, "web")
    return home


def ran(home: Path, *argv: str, vm: str = "web", end: Exit | None = None) -> None:
    contact = Contact(vm, "web", 3, f"{home}/run/{vm}", b"t" * 32, {}, 0, "/", "")
    verb = "exec" if vm == "web" else "run"
    with command_log.noted(home, contact, verb, Exec(argv, {})) as entry:
        entry.ended(end or Exit(0, 0, timed_out=False))


def shown(home: Path, *words: str) -> list[str]:
    done = box("logs", "web", *words, home=home)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode().splitlines()


def tear(home: Path) -> None:
    with Path(command_log.path_of(home, "web")).open("ab") as log:
        log.write(b'{"event": "start", "argv": ["torn')


def test_one_line_a_command_without_torn_ones(home: Path) -> None:
    ran(home, "sh", "-c", "exit 3", end=Exit(3, 0, timed_out=False))
    tear(home)
    ran(home, "\x1b[2J\n", os.fsdecode(b"\xff"), vm="web.1a", end=Exit(-1, 15, timed_out=False))
    ran(home, "x" * 9000, end=Exit(-1, 9, timed_out=True))
    first, second, third = shown(home)
    assert first.split("  ")[1:] == ["exec", first.split("  ")[2], "sh -c 'exit 3'"]
    assert first.split("  ")[2].startswith("exit 3 after ")
    assert "  run in web.1a  SIGTERM after " in second
    assert second.endswith("  '\\x1b[2J\\x0a' '\\udcff'")
    assert "  took too long after " in third
    assert third.endswith("x ...")
    assert [line.split("  ")[-1] for line in shown(home, "-n", "1")] == [third.split("  ")[-1]]
    assert shown(home, "-n", "0") == []


def test_a_command_whose_box_was_killed_has_started(home: Path) -> None:
    ran(home, "gone")
    path = Path(command_log.path_of(home, "web"))
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    assert [line.split("  ")[2:] for line in shown(home)] == [["started", "gone"]]


def test_json_is_the_lines_as_they_are_without_torn_ones(home: Path) -> None:
    ran(home, "one")
    whole = Path(command_log.path_of(home, "web")).read_text()
    tear(home)
    assert "\n".join(shown(home, "-o", "json")) + "\n" == whole
    assert [json.loads(line)["event"] for line in whole.splitlines()] == ["start", "end"]


@pytest.mark.slow
def test_what_a_guest_printed_cannot_drive_the_terminal(home: Path) -> None:
    console_log.path_of(home, "web").write_bytes(HOSTILE * 2 + b"prompt: ")
    line = "\\x1b]0;owned\\x07\\x9b2J\\x0dtab\there\\xff \\u202e"
    assert shown(home, "--console") == [line, line, "prompt: "]
    assert shown(home, "--console", "--tail", "1") == ["prompt: "]
    done = box("logs", "web", "--console", "--raw", home=home)
    assert done.stdout == HOSTILE * 2 + b"prompt: \n"


@pytest.mark.slow
def test_mistakes_are_told_with_what_to_do(home: Path) -> None:
    for words, told in (
        ("nosuch", "There is no sandbox nosuch.\nhint: `box ls`"),
        ("../x", "cannot be the name"),
        ("web --console -o json", "hint: box logs --help"),
        ("web --raw", "hint: box logs --help"),
    ):
        done = box("logs", *words.split(), home=home)
        assert (done.returncode, done.stdout) == (125, b"")
        assert told in done.stderr.decode()
    assert shown(home) == shown(home, "--console") == []


@pytest.fixture
def follower(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    ran(home, "before")
    child = subprocess.Popen(
        [sys.executable, "-I", str(REPO / "reconciler/__main__.py"), "logs", "web", "-f", "-n1"],
        env={"BOX_HOME": str(home), "HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    yield child
    child.kill()
    child.communicate()


def test_following_goes_on_over_a_rotation_and_ends_with_130(
    home: Path, follower: subprocess.Popen[bytes]
) -> None:
    assert follower.stdout is not None
    assert follower.stdout.readline().endswith(b"  before\n")
    path = Path(command_log.path_of(home, "web"))
    ran(home, "last of the old")
    append_line(path, b"", path.stat().st_size)
    assert path.with_name("commands.jsonl.1").exists()
    ran(home, "first of the new")
    words = [b"'last of the old'\n", b"'first of the new'\n"]
    for word in words:
        line = follower.stdout.readline()
        # Start and end may be seen together or one after the other.
        if b"  started  " in line:
            assert line.endswith(word)
            line = follower.stdout.readline()
        assert b"  exit 0 after " in line
        assert line.endswith(word)
    follower.send_signal(signal.SIGINT)
    assert follower.wait(30) == 130
