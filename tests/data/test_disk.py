from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.data import disk
from reconciler.data.disk import DiskHeld, NoRoom
from reconciler.errors import Refused

SIZE = 16 << 20
EXT4_MAGIC = b"\x53\xef"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "box-test", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_disk_has_its_size_is_ext4_sparse_and_private(tmp_path: Path) -> None:
    path = tmp_path / "data.img"
    disk.ensure_disk(path, SIZE)
    found = path.stat()
    assert found.st_size == SIZE
    assert found.st_blocks * 512 < SIZE // 2
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert path.read_bytes()[1080:1082] == EXT4_MAGIC
    assert [each.name for each in tmp_path.iterdir()] == ["data.img"]


def test_a_disk_that_is_there_is_never_touched(tmp_path: Path) -> None:
    path = tmp_path / "data.img"
    path.write_bytes(b"x" * SIZE)
    before = path.stat()
    disk.ensure_disk(path, SIZE)
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(("found", "verb"), [(SIZE // 2, "grow"), (SIZE * 2, "shrink")])
def test_a_disk_of_another_size_is_refused_with_a_line_for_the_boxfile(
    tmp_path: Path, found: int, verb: str
) -> None:
    path = tmp_path / "data.img"
    with path.open("wb") as stream:
        stream.truncate(found)
    with pytest.raises(Refused, match=f"cannot {verb}") as caught:
        disk.ensure_disk(path, SIZE)
    assert caught.value.hint is not None
    assert f"`data_size: {found >> 20}M`" in caught.value.hint
    assert path.stat().st_size == found


def test_a_disk_of_an_odd_size_is_refused_without_such_a_line(tmp_path: Path) -> None:
    path = tmp_path / "data.img"
    path.write_bytes(b"xyz")
    with pytest.raises(Refused) as caught:
        disk.ensure_disk(path, SIZE)
    assert caught.value.hint == "move the disk away to start with an empty one"


def test_many_makers_at_once_make_one_disk(tmp_path: Path) -> None:
    path = tmp_path / "data.img"
    errors: list[Exception] = []
    start = threading.Barrier(6)

    def make() -> None:
        start.wait(10)
        try:
            disk.ensure_disk(path, SIZE)
        except Exception as error:  # noqa: BLE001 - told by the test itself
            errors.append(error)

    makers = [threading.Thread(target=make) for _ in range(6)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(60)
    assert errors == []
    assert [each.name for each in tmp_path.iterdir()] == ["data.img"]
    assert path.read_bytes()[1080:1082] == EXT4_MAGIC


def test_a_maker_of_another_size_that_loses_the_race_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.img"
    errors: list[str] = []
    start = threading.Barrier(2)

    def make(size: int) -> None:
        start.wait(10)
        try:
            disk.ensure_disk(path, size)
        except Refused as error:
            errors.append(error.brief)

    makers = [threading.Thread(target=make, args=(size,)) for size in (SIZE, 2 * SIZE)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join(60)
    assert path.stat().st_size in (SIZE, 2 * SIZE)
    assert len(errors) == 1


@pytest.mark.root
def test_no_disk_rather_than_half_of_one_where_there_is_no_room(small_disk: Path) -> None:
    with pytest.raises(NoRoom, match="No room") as caught:
        disk.ensure_disk(small_disk / "data.img", SIZE)
    assert caught.value.hint == "free some disk space"
    assert list(small_disk.iterdir()) == []


def test_a_disk_in_use_by_another_process_is_held(tmp_path: Path) -> None:
    path = tmp_path / "data.img"
    disk.ensure_disk(path, SIZE)
    with disk.opened(path) as fd:
        disk.check_free(fd, path)
        # A byte-range lock as QEMU takes it, on one byte far behind the start.
        script = (
            "import fcntl, struct, sys\n"
            "f = open(sys.argv[1], 'r+b')\n"
            "fcntl.fcntl(f, 37, struct.pack('hhqqi4x', fcntl.F_RDLCK, 0, 201, 1, 0))\n"
            "print('locked', flush=True)\n"
            "sys.stdin.read()\n"
        )
        holder = subprocess.Popen(
            [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"locked\n"
            with pytest.raises(DiskHeld, match="Another VM") as caught:
                disk.check_free(fd, path)
            assert caught.value.hint is not None
            assert "--no-data" in caught.value.hint
        finally:
            holder.kill()
            holder.communicate(timeout=10)
        disk.check_free(fd, path)


def test_a_link_in_place_of_the_disk_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    (tmp_path / "data.img").symlink_to("other")
    with pytest.raises(OSError, match="not a regular file"), disk.opened(tmp_path / "data.img"):
        pytest.fail("opened")


def test_the_open_disk_is_closed_and_not_inherited(tmp_path: Path) -> None:
    (tmp_path / "data.img").write_bytes(b"")
    with disk.opened(tmp_path / "data.img") as fd:
        assert not os.get_inheritable(fd)
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(fd)
