"""A sandbox that seems to be up: its ports are served by plain processes of the host."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.engine import contact, records
from reconciler.engine.home import private_home
from reconciler.engine.records import STANDING, VmRecord
from reconciler.engine.traces import group_of
from reconciler.guest import protocol
from reconciler.linux import identity
from reconciler.sdk import Sandbox
from tests.engine.specs import SPEC

REPO = Path(__file__).parents[3]
Starter = Callable[..., contextlib.AbstractContextManager[Sandbox]]


@contextlib.contextmanager
def _seems_up(home: Path, answer: Path | None = None) -> Iterator[Sandbox]:
    token = secrets.token_hex(protocol.TOKEN_SIZE)
    record = VmRecord(
        vm="web",
        sandbox="web",
        kind=STANDING,
        incarnation=1,
        group=group_of(home, "web"),
        spec=SPEC,
        token=token,
        working_dir="/",
    )
    directory = record.directory(home)
    directory.mkdir(mode=0o700)
    words: list[str | Path] = [
        sys.executable, Path(__file__).with_name("plain_vm.py"), directory, token
    ]  # fmt: skip
    with subprocess.Popen(
        [*words, *([answer] if answer else [])],
        stdout=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPO)},
    ) as vm:
        try:
            assert vm.stdout is not None
            assert vm.stdout.readline() == b"ready\n"
            who = identity.identify(vm.pid)
            assert who is not None
            records.keep_vm(home, record.started(who))
            contact.note_boundary(directory, contact.stamps([Path("/proc/self/exe").resolve()]))
            yield Sandbox("web", home)
        finally:
            vm.kill()
            records.forget_vm(home, "web")


@pytest.fixture
def home(box_home: Path) -> Path:
    return private_home(box_home)


@pytest.fixture
def seems_up(home: Path) -> Starter:
    """Starts a hostile guest that answers every command with the contents of a file."""
    return lambda answer: _seems_up(home, answer)


@pytest.fixture
def box(home: Path) -> Iterator[Sandbox]:
    with _seems_up(home) as it:
        yield it


def held() -> tuple[int, int, int]:
    """How many descriptors, threads and children this process has."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), len(children)


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test with `box` this process has what it had before, its umask included."""
    if "box" not in request.fixturenames:
        yield
        return
    request.getfixturevalue("box")
    before = held()
    yield
    assert held() == before
    assert os.umask(0o022) == 0o022
