from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.linux.location import identity_of
from reconciler.linux.tree import Unsearchable, parse_listening, search
from tests.linux import mount_namespace

pytestmark = pytest.mark.usefixtures("no_descriptor_is_left")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Yield a folder with folder/file and links: to that, to what is around it, to nothing."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").touch()
    (tmp_path / "folder/up").symlink_to("..")
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "nowhere").symlink_to("missing")
    return tmp_path


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[int]:
    fd = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def found_in(directory: Path, at_most: int = 100) -> list[str]:
    with opened(directory) as fd, contextlib.closing(search(fd, at_most=at_most)) as searching:
        return sorted(found.path for found in searching)


def test_a_search_sees_everything_below_and_follows_no_link(folder: Path) -> None:
    expected = ["folder", "folder/file", "folder/up", "link", "nowhere"]
    assert found_in(folder) == expected


def test_what_is_found_is_known_by_identity(folder: Path) -> None:
    with opened(folder) as fd, contextlib.closing(search(fd, at_most=100)) as searching:
        for found in searching:
            facts = (folder / found.path).lstat()
            assert found.identity == (None if stat.S_ISDIR(facts.st_mode) else identity_of(facts))


def test_a_search_does_not_enter_what_became_a_link(folder: Path) -> None:
    (folder / "top/inner").mkdir(parents=True)
    with opened(folder / "top") as fd, contextlib.closing(search(fd, at_most=100)) as searching:
        assert next(searching).path == "inner"
        (folder / "top/inner").rmdir()
        (folder / "top/inner").symlink_to(folder / "folder")
        assert list(searching) == []


def test_a_search_gives_up_at_its_limit(folder: Path) -> None:
    assert len(found_in(folder, at_most=5)) == 5
    with pytest.raises(Unsearchable, match="too many files"):
        found_in(folder, at_most=4)


def test_a_search_gives_up_in_an_endless_depth(tmp_path: Path) -> None:
    before = Path.cwd()
    try:
        os.chdir(tmp_path)
        for _ in range(200):
            Path("d").mkdir()
            os.chdir("d")
    finally:
        os.chdir(before)
    with pytest.raises(Unsearchable, match="nested"):
        found_in(tmp_path, at_most=1000)


@pytest.mark.root
def test_a_search_enters_no_other_file_system(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    found = mount_namespace.run(
        """
        from reconciler.linux import tree
        top = Path(sys.argv[1])
        mount("-t", "tmpfs", "none", top / "other")
        (top / "other/hidden").touch()
        fd = os.open(top, os.O_PATH)
        print(json.dumps([found.path for found in tree.search(fd, at_most=100)]))
        """,
        tmp_path,
    )
    assert found == ["other"]


@pytest.mark.root
@pytest.mark.skipif(shutil.which("mkfs.btrfs") is None, reason="needs btrfs-progs")
def test_a_search_enters_a_subvolume_of_its_own_file_system(tmp_path: Path) -> None:
    devices, found, identity = mount_namespace.run(
        """
        import fcntl, struct
        from reconciler.linux import location, tree
        top = Path(sys.argv[1])
        os.truncate(os.open(top / "image", os.O_CREAT | os.O_RDWR), 256 << 20)
        subprocess.run(["mkfs.btrfs", "-q", top / "image"], check=True, stdout=subprocess.DEVNULL)
        (top / "mounted").mkdir()
        mount("-o", "loop", top / "image", top / "mounted")
        fd = os.open(top / "mounted", os.O_RDONLY)
        # BTRFS_IOC_SUBVOL_CREATE of linux/btrfs.h
        fcntl.ioctl(fd, 0x5000940E, bytearray(struct.pack("q4088s", 0, b"sub")))
        (top / "mounted/sub/file").touch()
        devices = [(top / "mounted" / name).stat().st_dev for name in ("", "sub")]
        folder, file = tree.search(fd, at_most=100)
        facts = (top / "mounted/sub/file").stat()
        print(json.dumps([devices, [folder, file], location.identity_of(facts)]))
        """,
        tmp_path,
    )
    assert devices[0] != devices[1]
    assert found == [["sub", None, False], ["sub/file", identity, False]]


def test_a_search_that_is_left_closes_what_it_held(folder: Path) -> None:
    with opened(folder) as fd, contextlib.closing(search(fd, at_most=100)) as searching:
        next(searching)


def test_only_sockets_are_sockets_and_one_may_vanish(folder: Path) -> None:
    os.mkfifo(folder / "fifo")
    with contextlib.ExitStack() as stack:
        fd = stack.enter_context(opened(folder))
        for name in ("one", "other"):
            stack.enter_context(socket.socket(socket.AF_UNIX)).bind(f"/proc/self/fd/{fd}/{name}")
        searching = stack.enter_context(contextlib.closing(search(fd, at_most=100)))
        assert sorted(each.path for each in searching if each.is_socket) == ["one", "other"]
        for name in ("folder/file", "folder/up", "link", "nowhere", "fifo"):
            (folder / name).unlink()
        (folder / "folder").rmdir()
        searching = stack.enter_context(contextlib.closing(search(fd, at_most=100)))
        first = next(searching)
        (folder / {"one": "other", "other": "one"}[first.path]).unlink()
        assert [each.is_socket for each in (first, *searching)] == [True, False]


def test_the_kernels_list_of_sockets_is_read_as_it_is() -> None:
    names = ["plain", "with space", "odd \udcff"]
    with contextlib.ExitStack() as stack:
        for listens in (True, False):
            for name in names:
                sock = stack.enter_context(socket.socket(socket.AF_UNIX))
                path = f"/tmp/box-{os.getpid()}-{listens}-{name}"
                sock.bind(path)
                stack.callback(Path(path).unlink)
                if listens:
                    sock.listen()
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0/tmp/box-{os.getpid()}-abstract")
        abstract.listen()
        found = parse_listening(Path("/proc/self/net/unix").read_bytes())
    ours = sorted(path for path in found if f"box-{os.getpid()}-" in path)
    assert ours == sorted(f"/tmp/box-{os.getpid()}-True-{name}" for name in names)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0: 02 00 00010000 0001 01 12 /a", {"/a"}),
        ("ffff8881: 00000002 00000000 00010000 0005 01 99999 /a b\t\\ \r", {"/a b\t\\ \r"}),
        ("0: 02 00 00000000 0001 03 12 /a", set()),
        ("0: 02 00 00010000 0001 01 12 @a", set()),
        ("0: 02 00 00010000 0001 01 12 relative", set()),
        ("0: 02 00 00010000 0001 01 12", set()),
        ("0: 02 00 00010000 0001 01 12 /a\n0: 02 00 00010000 0001 01 1 /b", {"/a", "/b"}),
        ("0: 02 00 00010000 0001 01 12 /a\nrest of the name", {"/a"}),
        ("", set()),
    ],
)
def test_a_line_of_the_list_is_a_listening_path_or_nothing(line: str, expected: set[str]) -> None:
    heading = "Num       RefCount Protocol Flags    Type St Inode Path\n"
    assert parse_listening(f"{heading}{line}\n".encode()) == expected
