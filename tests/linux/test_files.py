from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from reconciler.errors import Busy
from reconciler.linux.files import BrokenFile, locked, read_json, sweep, write_atomic, write_json

HOLDER = """
import sys, time
from pathlib import Path
from reconciler.linux.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_file_gets_the_mode_asked_for_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        write_atomic(tmp_path / "a", b"data", 0o444)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o444


def test_writing_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_atomic(path, b"one")
    inode = path.stat().st_ino
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_ino != inode, "written in place: a reader could see a half"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_in_the_place_of_the_file_is_replaced_not_followed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_bytes(b"untouched")
    (tmp_path / "state").symlink_to(canary)
    write_atomic(tmp_path / "state", b"new")
    assert canary.read_bytes() == b"untouched"
    assert not (tmp_path / "state").is_symlink()


def test_a_failed_write_leaves_the_old_and_no_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "state"
    target.mkdir()
    (target / "child").touch()
    with pytest.raises(OSError, match="directory"):
        write_atomic(target, b"data")
    assert list(tmp_path.iterdir()) == [target]


def test_json_comes_back(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"b": [1], "a": "é"})
    assert read_json(tmp_path / "x.json") == {"a": "é", "b": [1]}


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[1]", b"\xff", b"[" * 100_000],
    ids=["empty", "cut", "list", "bytes", "deep"],
)
def test_a_broken_file_is_told_apart_from_a_missing_one(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(BrokenFile, match="x"):
        read_json(tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "y")


def test_a_lock_that_is_held_makes_the_next_busy(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path), pytest.raises(Busy, match="lock"), locked(path, timeout_seconds=0):
        pytest.fail("two holders")
    with locked(tmp_path / "lock", timeout_seconds=0):
        pass


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    order: list[str] = []
    inside = threading.Event()

    def first() -> None:
        with locked(tmp_path / "lock"):
            inside.set()
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait(10)
    with locked(tmp_path / "lock", timeout_seconds=10):
        order.append("second")
    thread.join(10)
    assert order == ["first", "second"]


def test_a_killed_holder_leaves_no_lock(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER, lock], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(Busy), locked(lock, timeout_seconds=0):
                pytest.fail("two holders")
        finally:
            holder.kill()
    with locked(lock, timeout_seconds=60):
        pass


def opened(path: Path) -> int:
    """Return how many descriptors of ours are of `path`, removed or not."""
    targets = []
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            targets.append(str(fd.readlink()).removesuffix(" (deleted)"))
    return targets.count(str(path))


def test_who_waited_for_a_file_that_was_removed_waits_for_the_new_one(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    got = threading.Event()

    def wait() -> None:
        with locked(lock, timeout_seconds=30):
            got.set()

    waiter = threading.Thread(target=wait)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.ExitStack())
        first.enter_context(locked(lock))
        waiter.start()
        deadline = time.monotonic() + 60
        while opened(lock) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        lock.unlink()
        with locked(lock):
            first.close()
            assert not got.wait(0.3), "two holders: one of the old file, one of the new"
    assert got.wait(10)
    waiter.join(10)


def test_a_lock_on_a_removed_file_keeps_nobody_waiting_for_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with locked(lock):
        lock.unlink()
        with locked(lock, timeout_seconds=0):
            assert lock.exists()


def test_abandoned_drafts_are_swept_and_nothing_else(tmp_path: Path) -> None:
    for name in (".a.json.0123.tmp", ".young.tmp", "kept.tmp", ".hidden", "a.json"):
        (tmp_path / name).write_text("x")
        if name != ".young.tmp":
            os.utime(tmp_path / name, (0, 0))
    sweep(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {".young.tmp", "kept.tmp", ".hidden", "a.json"}
