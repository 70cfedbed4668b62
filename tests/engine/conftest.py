"""A home for tests that start no VM, and processes that stand for VMMs and commands."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.backends import runtime
from reconciler.engine import traces
from reconciler.engine.home import open_home
from reconciler.linux import cgroups, identity
from reconciler.linux.identity import ProcessIdentity

Sleeper = Callable[[], tuple[subprocess.Popen[bytes], ProcessIdentity]]


@pytest.fixture
def home(box_home: Path) -> Path:
    return open_home()


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
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


@pytest.fixture
def jailed(home: Path, sleeper: Sleeper) -> Iterator[Callable[[str], ProcessIdentity]]:
    """Puts a sleeping process into the cgroup of a VM of this home, with all a VM leaves."""
    made: list[str] = []

    def start(vm: str) -> ProcessIdentity:
        made.append(vm)
        child, who = sleeper()
        chosen = runtime.find_runtime()
        path = runtime.cgroup_path(chosen, traces.group_of(home, vm))
        for hierarchy in cgroups.detect().hierarchies:
            if hierarchy.controllers & {"pids", "freezer"} or hierarchy.version == 2:
                hierarchy.directory(path).mkdir(parents=True)
                (hierarchy.directory(path) / "cgroup.procs").write_text(str(child.pid))
        (home / "run" / vm).mkdir()
        (home / "run" / vm / "p0").write_text("")
        (home / "runtime" / vm).mkdir()
        return who

    yield start
    for vm in made:
        traces.discard_named(home, vm)
