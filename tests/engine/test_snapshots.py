from __future__ import annotations

import hashlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.engine import snapshots
from reconciler.linux import files
from reconciler.vmm.qemu import Machine

REPO = Path(snapshots.__file__).parents[2]
MACHINE = Machine("x86_64", "tcg", 1, 256, 16 << 20, readonly=False)


def settle(path: Path) -> None:
    """Wait until a change to `path` is sure to get another time stamp."""
    while time.time_ns() - path.stat().st_ctime_ns < 30_000_000:
        time.sleep(0.005)


def writing(data: bytes) -> Callable[[int], None]:
    return lambda fd: files.write_all(fd, data)


def state(home: Path, key: str = "key") -> bytes | None:
    with snapshots.opened(home, key) as fd:
        return None if fd is None else os.read(fd, 1 << 20)


def names(home: Path, key: str = "key") -> set[str]:
    return {each.name for each in (home / "snapshots" / key).iterdir()}


@pytest.fixture
def small_home(home: Path) -> Iterator[Path]:
    """A home whose snapshots have 1 MiB of room."""
    folder = home / "snapshots"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "box-test", folder], check=True)
    yield home
    subprocess.run(["umount", folder], check=True)


def test_a_snapshot_is_kept_whole_and_for_its_owner_alone(home: Path) -> None:
    assert state(home) is None
    snapshots.keep(home, "key", MACHINE, writing(b"memory"))
    assert state(home) == b"memory"
    path = snapshots.state_path(home, "key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    noted = files.read_json(path.with_name("meta.json"))
    assert noted["machine"] == MACHINE.key()
    assert noted["sha256"] == hashlib.sha256(b"memory").hexdigest()


def test_a_writer_that_fails_leaves_nothing_and_harms_nothing(home: Path) -> None:
    def failing(fd: int) -> None:
        files.write_all(fd, b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        snapshots.keep(home, "key", MACHINE, failing)
    assert state(home) is None
    snapshots.keep(home, "key", MACHINE, writing(b"whole"))
    with pytest.raises(KeyboardInterrupt):
        snapshots.keep(home, "key", MACHINE, failing)
    assert state(home) == b"whole"
    assert names(home) == {"state", "meta.json"}


@pytest.mark.root
def test_a_full_disk_leaves_no_snapshot(small_home: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        snapshots.keep(small_home, "key", MACHINE, writing(b"x" * (2 << 20)))
    assert state(small_home) is None
    assert not any(name.endswith(".tmp") for name in names(small_home))


def test_two_makers_at_once_leave_one_whole_snapshot(home: Path) -> None:
    both = threading.Barrier(2)

    def make(data: bytes) -> None:
        def slowly(fd: int) -> None:
            both.wait(10)
            files.write_all(fd, data)
            both.wait(10)

        snapshots.keep(home, "key", MACHINE, slowly)

    makers = [threading.Thread(target=make, args=(letter * 1000,)) for letter in (b"a", b"b")]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(30)
    assert state(home) in (b"a" * 1000, b"b" * 1000)
    assert names(home) == {"state", "meta.json"}


def test_a_reader_keeps_what_it_opened(home: Path) -> None:
    snapshots.keep(home, "key", MACHINE, writing(b"old"))
    with snapshots.opened(home, "key") as fd:
        snapshots.state_path(home, "key").unlink()
        snapshots.keep(home, "key", MACHINE, writing(b"new"))
        assert fd is not None
        assert os.read(fd, 10) == b"old"
    assert state(home) == b"new"


def test_a_second_maker_does_not_replace_what_is_there(home: Path) -> None:
    snapshots.keep(home, "key", MACHINE, writing(b"first"))
    snapshots.keep(home, "key", MACHINE, writing(b"second"))
    assert state(home) == b"first"
    assert names(home) == {"state", "meta.json"}


def test_what_a_killed_maker_left_goes_with_the_next_but_not_a_living_ones(home: Path) -> None:
    script = (
        "import os, sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from reconciler.engine import snapshots\n"
        "from reconciler.vmm.qemu import Machine\n"
        "def write(fd):\n"
        "    os.write(fd, b'half')\n"
        "    print('writing', flush=True)\n"
        "    time.sleep(60)\n"
        "machine = Machine('x86_64', 'tcg', 1, 256, 1, readonly=False)\n"
        "snapshots.keep(Path(sys.argv[2]), 'key', machine, write)\n"
    )
    maker = subprocess.Popen(
        [sys.executable, "-I", "-c", script, REPO, home], stdout=subprocess.PIPE
    )
    try:
        assert maker.stdout is not None
        assert maker.stdout.readline() == b"writing\n"
        snapshots.keep(home, "key", MACHINE, writing(b"whole"))
        assert any(name.endswith(".tmp") for name in names(home))
    finally:
        maker.send_signal(signal.SIGKILL)
        maker.communicate(timeout=10)
    snapshots.keep(home, "key", MACHINE, writing(b"whole"))
    assert names(home) == {"state", "meta.json"}


def damaged(home: Path, damage: Callable[[Path], object]) -> str:
    """Damage a snapshot that was found right; it has to be refused, once, and can be made again."""
    snapshots.keep(home, "key", MACHINE, writing(b"memory"))
    assert state(home) == b"memory"
    damage(snapshots.state_path(home, "key"))
    with pytest.raises(snapshots.WrongSnapshot) as caught:
        state(home)
    assert state(home) is None
    assert "state.broken" in names(home)
    snapshots.keep(home, "key", MACHINE, writing(b"memory"))
    assert state(home) == b"memory"
    return str(caught.value)


def one_byte(path: Path) -> None:
    facts = path.stat()
    with path.open("r+b") as stream:
        stream.write(b"M")
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def torn(path: Path) -> None:
    os.truncate(path, 3)


def zeros(path: Path) -> None:
    path.write_bytes(bytes(6))


@pytest.mark.parametrize("damage", [one_byte, torn, zeros])
def test_other_bytes_are_never_handed_over(home: Path, damage: Callable[[Path], None]) -> None:
    said = damaged(home, damage)
    assert "not what was written" in said
    assert hashlib.sha256(b"memory").hexdigest() in said


def linked(path: Path) -> None:
    path.rename(path.with_name("other"))
    path.symlink_to("other")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "file").write_bytes(b"")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def group_may_read(path: Path) -> None:
    path.chmod(0o640)


@pytest.mark.parametrize("damage", [linked, folder, fifo, group_may_read])
def test_what_is_no_file_of_ours_alone_is_refused(
    home: Path, damage: Callable[[Path], None]
) -> None:
    for _ in range(2):
        assert "no file of ours" in damaged(home, damage)


@pytest.mark.root
def test_a_file_of_somebody_elses_is_refused(home: Path) -> None:
    assert "of UID 12345" in damaged(home, lambda path: os.chown(path, 12345, -1))


@pytest.mark.parametrize("meta", [None, "{", "{}", '{"key": "key", "sha256": null}'])
def test_a_state_that_nothing_vouches_for_is_refused(home: Path, meta: str | None) -> None:
    def damage(path: Path) -> None:
        path.with_name("meta.json").unlink()
        if meta is not None:
            path.with_name("meta.json").write_text(meta)

    damaged(home, damage)


def test_the_snapshot_of_another_key_is_refused(home: Path) -> None:
    snapshots.keep(home, "other", MACHINE, writing(b"memory"))
    (home / "snapshots" / "other").rename(home / "snapshots" / "key")
    with pytest.raises(snapshots.WrongSnapshot, match="of other"):
        state(home)


def test_what_is_read_is_what_was_checked(home: Path) -> None:
    snapshots.keep(home, "key", MACHINE, writing(b"memory"))
    with snapshots.opened(home, "key") as fd:
        path = snapshots.state_path(home, "key")
        path.unlink()
        path.write_bytes(b"another")
        assert fd is not None
        assert os.read(fd, 100) == b"memory"


def test_one_that_no_vm_comes_of_is_put_aside_but_not_its_successor(home: Path) -> None:
    snapshots.keep(home, "key", MACHINE, writing(b"dead"))
    with pytest.raises(snapshots.WrongSnapshot), snapshots.opened(home, "key"):
        raise snapshots.WrongSnapshot("no VM comes of it")
    assert state(home) is None
    snapshots.keep(home, "key", MACHINE, writing(b"dead"))

    def use() -> None:
        with snapshots.opened(home, "key"):
            snapshots.state_path(home, "key").unlink()
            snapshots.keep(home, "key", MACHINE, writing(b"alive"))
            raise snapshots.WrongSnapshot("no VM comes of it")

    with pytest.raises(snapshots.WrongSnapshot):
        use()
    assert state(home) == b"alive"


def test_a_snapshot_is_read_once_and_then_known(home: Path) -> None:
    snapshots.keep(home, "key", MACHINE, writing(b"memory"))
    settle(snapshots.state_path(home, "key"))
    assert state(home) == b"memory"
    known = files.read_json(home / "digests.json")
    files.write_json(home / "digests.json", dict.fromkeys(known, "from the cache"))
    with pytest.raises(snapshots.WrongSnapshot, match="from the cache"):
        state(home)


def remove(home: Path) -> bool:
    return snapshots.remove(home, "key", lambda: True)


def test_a_snapshot_is_removed_whole_but_never_while_it_is_read(home: Path) -> None:
    snapshots.keep(home, "key", MACHINE, writing(b"memory"))
    with snapshots.opened(home, "key") as fd:
        assert fd is not None
        handed_over = os.dup(fd)
    try:
        assert not remove(home)
        assert state(home) == b"memory"
    finally:
        os.close(handed_over)
    assert not snapshots.remove(home, "key", lambda: False)
    assert remove(home)
    assert snapshots.keys(home) == frozenset()
    assert remove(home)


def test_a_snapshot_is_not_removed_while_it_is_made(home: Path) -> None:
    def write(fd: int) -> None:
        files.write_all(fd, b"memory")
        assert not remove(home)

    snapshots.keep(home, "key", MACHINE, write)
    assert state(home) == b"memory"


def test_nobody_starts_from_what_is_being_removed(home: Path) -> None:
    snapshots.keep(home, "key", MACHINE, writing(b"memory"))

    def unused() -> bool:
        assert state(home) is None
        return True

    assert snapshots.remove(home, "key", unused)


def test_what_a_crash_leaves_of_a_removed_one_is_no_snapshot_and_goes(home: Path) -> None:
    snapshots.keep(home, "key", MACHINE, writing(b"memory"))
    # The state goes first; this is all that may be left.
    snapshots.state_path(home, "key").unlink()
    assert state(home) is None
    snapshots.keep(home, "key", MACHINE, writing(b"again"))
    assert state(home) == b"again"
    snapshots.state_path(home, "key").unlink()
    assert snapshots.keys(home) == {"key"}
    assert remove(home)
    assert snapshots.keys(home) == frozenset()


def test_what_was_put_aside_goes_in_time(home: Path) -> None:
    damaged(home, torn)
    snapshots.forget_broken(home, "key", seconds=1000)
    assert "state.broken" in names(home)
    snapshots.forget_broken(home, "key", seconds=-1)
    assert names(home) == {"state", "meta.json"}
