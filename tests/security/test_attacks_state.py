"""Every file that box keeps, torn, forged or exchanged: told or mended, never waited for."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.images.kernel import fetch_kernel
from tests.live import DATA, SMALL, Live, live, quiet, root_has_ids
from tests.security.commands import Commands, served

pytestmark = [pytest.mark.vm, pytest.mark.root]

EXEC = ("exec", "web", "--", "true")
AT_LOGS = (("events",), ("events", "--verify"), ("logs", "web"), ("logs", "--console", "web"), EXEC)
AT_STATE = (("status",),)
AT_VM = (*AT_STATE, EXEC, ("inspect", "web"))
CANARY = "what a link leads to"
WARM = re.compile(r"web\.[0-9a-f]{8}")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parents[len(path.parents) - 4] / "canary")


def huge(path: Path) -> None:
    """A hole, as a power cut may leave one: it takes no room, and an hour to be read."""
    with path.open("r+b") as file:
        file.truncate(1 << 40)


KINDS: dict[str, Callable[[Path], object]] = {
    "another object": lambda path: path.write_bytes(b'{"spec": null, "identity": [], "at": {}}\n'),
    "huge": huge,
    "fifo": fifo,
    "folder": folder,
    "link": link,
}


@pytest.fixture(scope="module")
def used() -> Iterator[Live]:
    """A home in which everything has been done once, and a VM that is up."""
    with root_has_ids(), live() as it:
        fetch_kernel(it.home, quiet)
        it.declare("web", SMALL + DATA)
        it.box("up", "web")
        it.box(
            "exec", "web", "--", "sh", "-c", "echo kept >/data/f; sync; echo hello >/dev/console"
        )
        it.box("status")
        it.box("inspect", "web")
        it.box("logs", "--console", "web")
        (it.home.parent / "canary").write_text(CANARY)
        yield it


@pytest.fixture(scope="module")
def commands(used: Live) -> Iterator[Commands]:
    with served(used.environment) as it:
        yield it


def state_files(home: Path) -> list[Path]:
    """One of each kind of file that box writes: not the OCI runtime's, no part of a kernel."""
    found = {}
    for path in sorted(home.rglob("*")):
        below = path.relative_to(home)
        if (
            not path.is_file()
            or below.parts[0] == "runtime"
            or path.suffix == ".ko"
            or WARM.search(str(below))
        ):
            continue
        found["".join(c for c in str(below) if not c.isdigit())] = path
    return list(found.values())


def without(path: Path) -> None:
    """Take away what is there now."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def looks_at(path: Path) -> tuple[tuple[str, ...], ...]:
    """The commands that read a file of this kind."""
    if ".log" in path.name or ".jsonl" in path.name:
        return AT_LOGS
    return AT_VM if "run" in path.parts or "proofs" in path.parts else AT_STATE


def complaint(commands: Commands, looks: tuple[tuple[str, ...], ...]) -> list[str]:
    """What is wrong with how these commands end, whatever they end with."""
    wrong = []
    for look in looks:
        ended = commands.run(*look)
        text = ended.stderr
        # 1 is what a look that found something ends with; an error has words of ours.
        if not 0 <= ended.status <= 125 or "Traceback" in text or (ended.status > 1 and not text):
            wrong.append(f"{look}: {ended.status} {text[-300:]}")
    return wrong


def test_a_home_in_use_has_all_the_files_that_are_tried(used: Live) -> None:
    names = {path.name for path in state_files(used.home)}
    assert {"record.json", "web.json", "policy.json", "events.jsonl", "commands.jsonl"} <= names
    assert {"console.log", "data.img", "state", "meta.json", "digests.json", "lock"} <= names
    assert len(state_files(used.home)) > 25


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_no_file_holds_a_command_up_or_makes_it_fall(
    used: Live, commands: Commands, kind: str
) -> None:
    pid = used.pid("web")
    wrong = {}
    for path in state_files(used.home):
        saved = used.home.parent / "saved"
        path.rename(saved)
        if saved.stat().st_size < 1 << 20:
            shutil.copyfile(saved, path)
        else:
            path.touch()
        path.chmod(0o600)
        KINDS[kind](path)
        found = complaint(commands, looks_at(path))
        without(path)
        saved.rename(path)
        if found:
            wrong[str(path.relative_to(used.home))] = found
    assert wrong == {}
    assert used.pid("web") == pid
    assert (used.home.parent / "canary").read_text() == CANARY
    assert used.box("exec", "web", "--", "cat", "/data/f").stdout == b"kept\n"


@pytest.mark.timeout(600)
def test_what_can_be_made_anew_is_when_all_of_it_is_torn_at_once(used: Live) -> None:
    used.box("down", "web")
    memories = ("accelerator.json", "digests.json", "libraries.json", "refs.json", "built.json")
    torn = [path for path in used.home.rglob("*.json") if path.name in memories]
    torn += [*used.home.glob("images/*/meta.json"), *used.home.glob("snapshots/*/meta.json")]
    torn += used.home.glob("proofs/*.json")
    assert len(torn) >= len(memories) + 3
    # A folder in the place of a file is for a person to take away.
    kinds = [make for kind, make in KINDS.items() if make is not folder]
    for number, path in enumerate(torn):
        kinds[number % len(kinds)](path)
    used.box("up", "web")
    assert used.box("exec", "web", "--", "cat", "/data/f").stdout == b"kept\n"
    assert used.box("inspect", "web").returncode == 0
