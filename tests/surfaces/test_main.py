from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.surfaces.cli import main

REPO = Path(main.__file__).parents[3]


def box(
    *arguments: str, home: Path, prepare: Callable[[], None] | None = None, stdout: int = -1
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-I", str(REPO / "reconciler/__main__.py"), *arguments],
        env={"BOX_HOME": str(home), "BOX_DESIRED": str(home), "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
        preexec_fn=prepare,
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run", "Which sandbox?"),
        ("run web", "Which command?"),
        ("exec web", "Which command?"),
        ("run web --env X -- true", "--env takes NAME=VALUE"),
        ("run web --timeout x -- true", "--timeout takes seconds"),
        ("run web --timeout nan -- true", "--timeout takes seconds"),
        ("run web --bogus -- true", "no option --bogus"),
        ("exec web -o xml -- true", "--output takes text or json"),
        ("exec web -o json -t -- true", "one of the two"),
        ("shell web -o json", "no option -o"),
        ("run web -- true", "There is no sandbox web."),
        ("up web", "There is no sandbox web."),
        ("up web extra", "only the sandbox's name"),
        ("exec web -- true", "web is not running."),
        ("destroy web", "There is no sandbox web."),
        ("destroy web --data", "There is no sandbox web."),
        ("exec ../web -- true", "cannot be the name"),
        ("up ../web", "cannot be the name"),
        ("run ../web -- true", "cannot be the name"),
    ],
)
def test_a_users_mistake_is_one_message_and_125(box_home: Path, words: str, message: str) -> None:
    done = box(*words.split(), home=box_home)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (125, b"")
    assert said.startswith("box: ")
    assert message in said
    assert "Traceback" not in said


def test_a_home_that_cannot_be_is_a_message(box_home: Path) -> None:
    (box_home / "file").write_text("")
    done = box("up", "web", home=box_home / "file" / "home")
    assert done.returncode == 125
    assert done.stderr.startswith(f"box: {box_home}/file".encode())


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_streams_are_never_a_file_of_ours(box_home: Path, closed: tuple[int, ...]) -> None:
    (box_home / "web.Boxfile").write_text(
        "version: 1\nbase: builtin:busybox\nnetwork: none\nstate: stopped\nisolation: strict\n"
    )

    def close() -> None:
        for fd in closed:
            os.close(fd)

    done = box("down", "web", home=box_home, prepare=close)
    assert done.returncode == 0, done.stderr
    if 1 not in closed:
        assert done.stdout == b"web is down; /data is kept\n"
    for path in box_home.rglob("*"):
        if path.is_file():
            assert b"web is down" not in path.read_bytes()


def test_a_full_disk_behind_stdout_is_told_and_fails(box_home: Path) -> None:
    (box_home / "web.Boxfile").write_text(
        "version: 1\nbase: builtin:busybox\nnetwork: none\nstate: stopped\nisolation: strict\n"
    )
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        done = box("down", "web", home=box_home, stdout=full)
    finally:
        os.close(full)
    assert done.returncode == 125
    assert done.stderr.decode() == "box: No space left on device\n"


@pytest.mark.parametrize(
    "arguments",
    [("down", "web"), ("plan", "."), ("plan", ".", "-o", "json"), ("explain",)],
    ids=" ".join,
)
def test_a_reader_that_has_gone_ends_it_as_a_signal_would(
    box_home: Path, arguments: tuple[str, ...]
) -> None:
    (box_home / "web.Boxfile").write_text(
        "version: 1\nbase: builtin:busybox\nnetwork: none\nstate: stopped\nisolation: strict\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = box(*arguments, home=box_home, stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize("command", ["new --list", "explain network", "new --list -o json"])
def test_a_table_whose_reader_has_gone_ends_as_every_output_does(
    box_home: Path, command: str
) -> None:
    # 1 would be an answer: a plan with errors, a doctor's failure, a report's difference.
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = box(*command.split(), home=box_home, stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_interrupted_while_it_waits_for_another_command(box_home: Path) -> None:
    from reconciler.engine.home import open_home, sandbox_directory
    from reconciler.linux import files

    (box_home / "web.Boxfile").write_text(
        "version: 1\nbase: builtin:busybox\nnetwork: none\nstate: stopped\nisolation: strict\n"
    )
    lock = sandbox_directory(open_home(), "web") / "lock"
    with files.locked(lock):
        for signo in (signal.SIGINT, signal.SIGTERM):
            child = subprocess.Popen(
                [sys.executable, "-I", str(REPO / "reconciler/__main__.py"), "down", "web"],
                env={"BOX_HOME": str(box_home), "BOX_DESIRED": str(box_home)},
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            # Until it waits for the lock, which it has open then.
            while not _has_open(child.pid, lock):
                assert child.poll() is None
            child.send_signal(signo)
            _, said = child.communicate(timeout=30)
            assert (child.returncode, said) == (128 + signo, b"box: interrupted\n")


def _has_open(pid: int, path: Path) -> bool:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if link.readlink() == path:
                return True
        except FileNotFoundError:
            continue
    return False


def test_the_way_to_a_command_loads_nothing_slow(box_home: Path) -> None:
    box_exec = [str(REPO / "reconciler/__main__.py"), "exec", "web", "-o", "json", "--", "true"]
    done = subprocess.run(
        [sys.executable, "-I", "-X", "importtime", *box_exec],
        env={"BOX_HOME": str(box_home), "HOME": str(box_home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"web is not running" in done.stderr
    loaded = {line.split(b"|")[-1].strip().decode() for line in done.stderr.splitlines()}
    assert "reconciler.engine.command_log" in loaded
    slow = {"argparse", "ast", "base64", "dataclasses", "datetime", "inspect", "subprocess"}
    assert loaded & (slow | {"pydantic", "rich", "shlex", "typer", "yaml"}) == set()
