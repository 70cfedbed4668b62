"""Completion in the shells themselves, each in a terminal: what the tab key makes of a line."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.surfaces.cli import vm
from reconciler.surfaces.cli.app import app
from reconciler.surfaces.cli.completion import rows, script
from tests.surfaces.terminals import Terminal, in_terminal

# How each is started without anybody's configuration, what turns the completion on in it, and a
# `box` that shows the words it was given.
SHELLS = {
    "bash": (
        ["--norc", "--noprofile", "-i"],
        "source {0}",
        'box() {{ printf "<%s>" "$@"; echo; }}',
    ),
    "zsh": (
        ["-f", "-i"],
        "autoload -Uz compinit; compinit -u -D; source {0}",
        'box() {{ printf "<%s>" "$@"; echo; }}',
    ),
    "fish": (["-N", "-i"], "source {0}", 'function box; printf "<%s>" $argv; echo; end'),
}
# What is typed, with \t for the tab key; and the words that box gets.
LINES = {
    "box exe\tweb": ("exec", "web"),
    "box exec we\t-- true": ("exec", "web", "--", "true"),
    "box exec --out\tjs\twe\t": ("exec", "--output", "json", "web"),
    "box exec -u roo we\t": ("exec", "-u", "roo", "web"),
    "box run we\t--no\tx": ("run", "web", "--no-data", "x"),
    "box exec web -- we\t": ("exec", "web", "--", "we"),
    "box exec web ls --us\t": ("exec", "web", "ls", "--us"),
    "box exec web ls we\t": ("exec", "web", "ls", "we"),
    "box up decl\t": ("up", "declared"),
    "box up za\t": ("up", "za"),
    "box up fold\t": ("up", "folder"),
    "box logs --con\twe\t": ("logs", "--console", "web"),
    "box cp we\t/f .": ("cp", "web:/f", "."),
    "box cp ./fi\twe\t": ("cp", "./file.txt", "web:"),
    "box cp web:\t/f x": ("cp", "web:/f", "x"),
    "box validate fi\tfi\t": ("validate", "file.txt", "file.txt"),
    "box explain ram\t": ("explain", "ram_mib"),
    "box new we\t": ("new", "we"),
    "box inspect --sec\twe\t": ("inspect", "--security-report", "web"),
    "box inspect we\t--di\tdecl\t": ("inspect", "web", "--diff", "declared"),
    "box completion fi\t": ("completion", "fish"),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "home" / "sandboxes" / "web").mkdir(parents=True)
    (tmp_path / "home" / "sandboxes" / "zap $(touch hacked)").mkdir()
    (tmp_path / "desired" / "folder").mkdir(parents=True)
    (tmp_path / "desired" / "folder" / "Boxfile").touch()
    (tmp_path / "desired" / "declared.Boxfile").touch()
    (tmp_path / "file.txt").touch()
    return tmp_path


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, place: Path) -> Iterator[Terminal]:
    program = shutil.which(request.param)
    if program is None:
        pytest.skip(f"needs {request.param}")
    options, switch_on, box = SHELLS[request.param]
    (place / "script").write_text(script(request.param, list(rows(app))))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "BOX_HOME": str(place / "home"),
        "BOX_DESIRED": str(place / "desired"),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }
    with in_terminal([program, *options], environment) as terminal:
        for line in (f"cd {place}", switch_on.format(place / "script"), box.format()):
            terminal.type(line.encode() + b"\r")
        terminal.type(b"echo rea''dy\r")
        terminal.until(b"ready")
        yield terminal


def test_the_tab_key_completes(shell: Terminal, place: Path) -> None:
    for line, words in LINES.items():
        shell.type(line.encode() + b"\r")
        shell.until("".join(f"<{word}>" for word in words).encode(), seconds=10)
    assert not (place / "hacked").exists()


def test_help_and_the_short_way_have_the_same_options() -> None:
    told = {row.verb: row for row in rows(app)}
    for verb, known in vm.VERBS.items():
        assert set(told[verb].options) - {"--help"} == set(known.options)
        assert set(told[verb].valued) == {each for each, takes in known.options.items() if takes}


@pytest.mark.parametrize(
    "line", ["box schema ", "box home ", "box doctor --", "box nosuch w", "box "]
)
def test_bash_says_nothing_where_there_is_nothing_to_complete(line: str, tmp_path: Path) -> None:
    """A complaint of the shell would stand in the middle of what is being typed."""
    path = tmp_path / "completion"
    path.write_text(script("bash", list(rows(app))))
    typed = '. "$1"; COMP_LINE=$2 COMP_POINT=${#2}; _box'
    words = ["bash", "--norc", "-c", typed, "-", str(path), line]
    done = subprocess.run(words, capture_output=True, cwd=tmp_path, timeout=30, check=False)
    assert done.stderr == b""
