"""A home for tests that start no VM, and processes that stand for VMMs and commands."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.engine.home import open_home
from reconciler.linux import identity
from reconciler.linux.identity import ProcessIdentity


@pytest.fixture
def home(box_home: Path) -> Path:
    return open_home()


@pytest.fixture
def sleeper() -> Iterator[Callable[[], tuple[subprocess.Popen[bytes], ProcessIdentity]]]:
    """Starts a process that sleeps, and tells its identity."""
    children = []

    def start() -> tuple[subprocess.Popen[bytes], ProcessIdentity]:
        child = subprocess.Popen(["/bin/sleep", "60"], stdin=subprocess.DEVNULL)
        children.append(child)
        # Until it has executed the program, its identity is another one's.
        while Path(f"/proc/{child.pid}/exe").readlink().name != "sleep":
            pass
        who = identity.identify(child.pid)
        assert who is not None
        return child, who

    yield start
    for child in children:
        child.kill()
        child.wait(10)
