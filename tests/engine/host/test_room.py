from __future__ import annotations

import os
from pathlib import Path

from reconciler.engine.home import disk_of
from reconciler.engine.host import room
from reconciler.engine.host.check import Status

MIB = 1 << 20


def grown(home: Path, name: str, size: int, written: int = 0) -> Path:
    """A sandbox's disk of `size` bytes, so many of them written."""
    path = disk_of(home, name)
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.write(os.urandom(written))
        file.truncate(size)
    return path


def test_what_sparse_disks_may_still_take_is_told(home: Path) -> None:
    grown(home, "web", 96 * MIB)
    grown(home, "db", 64 * MIB, written=32 * MIB)
    (home / "sandboxes" / "new").mkdir()
    seen = room.look_disk(home)
    assert seen.status is Status.OK
    assert "may still take 128" in seen.found


def test_disks_that_may_take_more_than_there_is_are_a_finding_with_its_fix(home: Path) -> None:
    grown(home, "huge", 1 << 42)
    seen = room.look_disk(home)
    assert seen.status is Status.FINDING
    assert "4194304" in seen.found
    assert seen.fix is not None
    assert "data_size" in seen.fix
