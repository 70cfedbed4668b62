from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.engine import snapshots
from reconciler.linux import files
from reconciler.vmm.qemu import Machine

REPO = Path(snapshots.__file__).parents[2]
MACHINE = Machine("x86_64", "tcg", 1, 256, 16 << 20, readonly=False)


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


def test_a_snapshot_is_kept_whole_and_read_only(home: Path) -> None:
    assert state(home) is None
    snapshots.keep(home, "key", MACHINE, writing(b"memory"))
    assert state(home) == b"memory"
    path = snapshots.state_path(home, "key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert files.read_json(path.with_name("meta.json"))["machine"] == MACHINE.key()


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
    assert names(home) == {"state", "meta.json", "lock"}


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
    assert names(home) == {"state", "meta.json", "lock"}


def test_a_reader_keeps_what_it_opened(home: Path) -> None:
    snapshots.keep(home, "key", MACHINE, writing(b"old"))
    with snapshots.opened(home, "key") as fd:
        snapshots.keep(home, "key", MACHINE, writing(b"new"))
        snapshots.drop(home, "key")
        assert fd is not None
        assert os.read(fd, 10) == b"old"
    assert state(home) is None


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
    assert names(home) == {"state", "meta.json", "lock"}


def test_a_link_in_place_of_the_state_is_not_followed(home: Path) -> None:
    snapshots.keep(home, "key", MACHINE, writing(b"x"))
    path = snapshots.state_path(home, "key")
    path.rename(path.with_name("other"))
    path.symlink_to("other")
    with pytest.raises(OSError, match="symbolic links"), snapshots.opened(home, "key"):
        pytest.fail("opened")
