"""./box in a checkout: makes its environment once, survives being killed, two at once, a move."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAUNCHER_FAILED = 125


def checkout(folder: Path) -> Path:
    """Copy what the launcher uses into folder; the program in it only prints its arguments."""
    (folder / ".ci").mkdir(parents=True)
    for name in ["box", ".ci/make-venv", "pyproject.toml", "constraints.txt", "hatch_build.py"]:
        shutil.copy2(ROOT / name, folder / name)
    for name in ["README.md", "LICENSE"]:
        shutil.copy2(ROOT / name, folder / name)
    (folder / "reconciler").mkdir()
    (folder / "reconciler/__init__.py").write_text('__version__ = "0.0.1"\n')
    shutil.copy2(ROOT / "reconciler/__main__.py", folder / "reconciler/__main__.py")
    (folder / "reconciler/surfaces/cli").mkdir(parents=True)
    (folder / "reconciler/surfaces/cli/main.py").write_text(MAIN)
    return folder


MAIN = """
import sys
import pydantic, reconciler

def main():
    print(reconciler.__file__, sys.argv[1:])
    return 0

def is_short(words):
    return not words
"""


def start(folder: Path, *arguments: str, path: str = "/usr/bin:/bin") -> subprocess.Popen[str]:
    """Start the checkout's box in a process group of its own, from another folder."""
    return subprocess.Popen(
        [folder / "box", *arguments],
        cwd="/",
        env={"PATH": path, "HOME": str(Path.home())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Return exit status, stdout and stderr; the group is killed should it take too long."""
    try:
        out, err = process.communicate(timeout=200)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return process.returncode, out, err


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a path exists or the process has ended."""
    while not path.exists() and process.poll() is None:
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_first_uses_at_once_a_kill_and_a_move(tmp_path: Path) -> None:
    # One environment takes long, so its life is told in one test.
    folder = checkout(tmp_path / "first")
    killed = start(folder, "ls")
    wait_for(folder / ".venv/bin/python", killed)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not (folder / ".venv/box-ready").exists()

    both = [finish(process) for process in [start(folder, "a b", "*"), start(folder, "c")]]
    assert [status for status, _, _ in both] == [0, 0]
    assert [out.split(" ", 1)[1] for _, out, _ in both] == ["['a b', '*']\n", "['c']\n"]
    assert sum("setting up" in err for _, _, err in both) == 1

    os.utime(folder / "pyproject.toml")
    assert finish(start(folder)) == (0, f"{folder}/reconciler/__init__.py []\n", "")

    moved = folder.rename(tmp_path / "moved")
    status, out, err = finish(start(moved))
    assert (status, out) == (0, f"{moved}/reconciler/__init__.py []\n")
    assert "setting up" in err


def test_neither_the_callers_folder_nor_its_environment_decides_what_runs(tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    (hostile / "typer.py").write_text("raise SystemExit('hostile code ran')\n")
    (hostile / "reconciler.py").write_text("raise SystemExit('hostile code ran')\n")
    done = subprocess.run(
        [ROOT / "box", "--version"],
        cwd=hostile,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(hostile), "HOME": "/nonexistent"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "hostile" not in done.stdout + done.stderr


def test_a_symlink_to_the_launcher_finds_its_checkout(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin/box"
    link.symlink_to(ROOT / "box")
    by_link, by_path = (
        subprocess.run(
            [command, "--version"], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        for command in [link, ROOT / "box"]
    )
    assert by_link.stdout == by_path.stdout
    assert by_link.returncode == by_path.returncode


def without_venv_module(folder: Path) -> str:
    """Return a PATH whose Pythons, /usr/bin/python3 aside, are none; see the tests' use."""
    folder.mkdir()
    for name in ["sh", "cat", "cksum", "dirname", "flock", "id", "touch", "stat", "rm", "mktemp"]:
        program = shutil.which(name)
        assert program
        (folder / name).symlink_to(program)
    return str(folder)


@pytest.mark.parametrize(
    ("arguments", "answer"), [(("ls",), "python3-venv"), (("quickstart",), "python3-venv")]
)
def test_without_a_usable_python_the_command_to_run_is_named(
    tmp_path: Path, arguments: tuple[str, ...], answer: str
) -> None:
    folder = checkout(tmp_path / "checkout")
    maker = folder / ".ci/make-venv"
    maker.write_text(maker.read_text().replace("/usr/bin/python3 ", ""))
    path = without_venv_module(tmp_path / "bin")
    (tmp_path / "bin/apt-get").symlink_to("/bin/false")
    status, out, err = finish(start(folder, *arguments, path=path))
    assert (status, out) == (LAUNCHER_FAILED, "")
    assert answer in err
    assert not (folder / ".venv").exists()


@pytest.mark.parametrize("arguments", [("quickstart", "--yes")])
def test_quickstart_yes_installs_it(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    folder = checkout(tmp_path / "checkout")
    maker = folder / ".ci/make-venv"
    maker.write_text(maker.read_text().replace("/usr/bin/python3 ", ""))
    path = without_venv_module(tmp_path / "bin")
    log = tmp_path / "log"
    for name in ["apt-get", "sudo"]:
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >>{log}\n')
        program.chmod(0o755)
    status, _, err = finish(start(folder, *arguments, path=path))
    assert status == LAUNCHER_FAILED
    assert "not even after installing" in err
    called = log.read_text()
    assert "install" in called
    assert "python3-venv" in called


@pytest.mark.root
def test_a_checkout_one_may_not_write_to_says_who_can_help(tmp_path: Path) -> None:
    folder = checkout(Path("/tmp") / f"box-checkout-{os.getpid()}")  # every user enters
    try:
        done = subprocess.run(
            ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", folder / "box"],
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        shutil.rmtree(folder)
    assert done.returncode == LAUNCHER_FAILED
    assert "may not write there" in done.stderr
    assert "as root" in done.stderr
