"""A VMM's empty environment, by each env(1) that a host may have."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.backends import vmm_files
from reconciler.confinement.policy import Slot
from reconciler.images import fingerprint
from reconciler.images.busybox import find_busybox
from reconciler.linux import reading
from tests.probe import program, standing

SLOT = Slot(0, 3_720_000_000, 3_720_000_000)
# One program of many names, as uutils is: Debian keeps it out of the way of its own env.
UUTILS = Path("/usr/lib/cargo/bin/coreutils/env")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that a slot's user can enter."""
    with tempfile.TemporaryDirectory(prefix="box-env-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.root
@pytest.mark.parametrize("kind", ["coreutils", "busybox", "uutils"])
@pytest.mark.slow
def test_the_vmm_is_started_by_it_and_nothing_of_it_is_left(folder: Path, kind: str) -> None:
    home = folder / "home"
    home.mkdir(mode=0o700)
    launch = standing.launch_of(home, program.build(folder), "strict", SLOT)
    if kind != "coreutils":
        env = folder / "env"
        env.symlink_to(find_busybox() if kind == "busybox" else UUTILS)
        if not env.exists():
            pytest.skip("uutils' coreutils are not installed")
        if not vmm_files.becomes_it(env):
            pytest.skip("this one starts a child")
        libraries = fingerprint.library_closure(env)
        launch = replace(launch, files=replace(launch.files, env=env, libraries=libraries))
    with standing.standing(launch) as stand:
        (process,) = reading.read_process(stand.who, stand.policy).processes
        assert stand.talk.view()["environment"] == []
        assert process.environment_bytes == 0
        assert Path(f"/proc/{stand.who.pid}/exe").readlink() == launch.files.binary


OTHERS = {
    "one that starts a child": 'shift; env -i "$@"; true',
    "one that keeps a variable": 'shift; exec env -i A=1 "$@"',
    "one that starts nothing": "exit 0",
}


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_one_that_does_something_else_is_not_taken(tmp_path: Path, body: str) -> None:
    env = tmp_path / "env"
    env.write_text(f"#!/bin/sh\n{body}\n")
    env.chmod(0o755)
    assert not vmm_files.becomes_it(env)
    env.unlink()
    env.symlink_to(find_busybox())
    assert vmm_files.becomes_it(env)
