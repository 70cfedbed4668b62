from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.errors import Refused
from reconciler.linux import location, paths
from reconciler.linux.location import Identity
from reconciler.linux.paths import LinkOnPath, Opened, Unreachable
from tests.linux import mount_namespace

pytestmark = pytest.mark.usefixtures("no_descriptor_is_left")


OPENERS = pytest.mark.parametrize("opener", [paths.open_unlinked, paths.open_following])
Opener = Callable[[str], Opened]


def identity(path: Path) -> Identity:
    return location.identity_of(path.lstat())


@contextlib.contextmanager
def opened(opener: Opener, path: Path | str) -> Iterator[Opened]:
    it = opener(str(path))
    try:
        yield it
    finally:
        os.close(it.fd)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Yield a folder with folder/file, and links: to folder, to the file, to nothing, to itself."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_text("x")
    for name, target in (
        ("link", "folder"),
        ("folder/alias", "file"),
        ("nowhere", "missing"),
        ("loop", "loop"),
    ):
        (tmp_path / name).symlink_to(target)
    return tmp_path


@OPENERS
@pytest.mark.parametrize("text", ["folder", "folder/", "./folder", "/folder//."])
def test_a_folder_is_opened_and_knows_where_it_lies(opener: Opener, tree: Path, text: str) -> None:
    with opened(opener, f"{tree}/{text}") as it:
        assert it.location.path == str(tree / "folder")
        assert location.identity_of(os.fstat(it.fd)) == it.identity == identity(tree / "folder")
        assert stat.S_ISDIR(it.mode)
        assert it.location.above >= {identity(tree), identity(Path("/"))}
        assert it.identity not in it.location.above
        assert not os.get_inheritable(it.fd)


@OPENERS
def test_a_file_lies_in_the_folder_that_it_was_found_in(opener: Opener, tree: Path) -> None:
    with opened(opener, tree / "folder/file") as it:
        assert stat.S_ISREG(it.mode)
        assert it.location.above >= {identity(tree / "folder"), identity(tree)}


@OPENERS
def test_the_root_can_be_opened(opener: Opener) -> None:
    with opened(opener, "/") as it:
        assert (it.location.path, it.location.above) == ("/", frozenset())
        assert "/proc" in {mount.target for mount in it.inner_mounts}


@OPENERS
def test_the_place_is_that_of_the_name(opener: Opener, tree: Path) -> None:
    (named,) = location.locate(str(tree / "folder"), location.read_mounts())
    with opened(opener, tree / "folder") as it:
        assert it.location.places
        assert it.location.places <= named.places


@pytest.mark.parametrize(
    ("name", "link"),
    [
        ("link", "link"),
        ("link/", "link"),
        ("link/file", "link"),
        ("folder/alias", "folder/alias"),
        ("nowhere", "nowhere"),
        ("loop/x", "loop"),
    ],
)
def test_a_link_anywhere_on_the_path_is_refused_by_name(tree: Path, name: str, link: str) -> None:
    with pytest.raises(LinkOnPath) as caught:
        paths.open_unlinked(f"{tree}/{name}")
    assert caught.value.path == str(tree / link)


@pytest.mark.parametrize(("name", "leads"), [("link", "folder"), ("folder/alias", "folder/file")])
def test_links_are_followed_when_that_is_wanted(tree: Path, name: str, leads: str) -> None:
    with opened(paths.open_following, tree / name) as it:
        assert it.identity == identity(tree / leads)
        assert it.location.path == str(tree / leads)


@pytest.mark.parametrize("text", ["..", "folder/..", "folder/../folder/file"])
def test_no_path_may_climb(tree: Path, text: str) -> None:
    with pytest.raises(Refused, match=r"`\.\.`"):
        paths.open_unlinked(f"{tree}/{text}")


@pytest.mark.parametrize(
    ("name", "error", "component"),
    [
        ("missing/x", FileNotFoundError, "missing"),
        ("folder/file/x", NotADirectoryError, "folder/file/x"),
        ("x" * 300, OSError, "x" * 300),
    ],
)
def test_an_error_names_the_component(
    tree: Path, name: str, error: type[OSError], component: str
) -> None:
    with pytest.raises(error) as caught:
        paths.open_unlinked(f"{tree}/{name}")
    assert caught.value.filename == str(tree / component)


def test_a_fifo_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with opened(paths.open_unlinked, tmp_path / "fifo") as it:
        assert stat.S_ISFIFO(it.mode)


def test_a_magic_link_gives_the_object_its_own_name(tree: Path) -> None:
    with opened(paths.open_following, f"/proc/self/root{tree}/folder") as it:
        assert it.location.path == str(tree / "folder")
    with opened(paths.open_following, "/proc/self/root") as it:
        assert it.identity == identity(Path("/"))


def test_what_was_removed_is_reached_by_no_name(tmp_path: Path) -> None:
    for name in ("gone", "gone (deleted)"):
        (tmp_path / name).touch()
    with (tmp_path / "gone").open() as file:
        (tmp_path / "gone").unlink()
        # The kernel shows it by the very name of the other file.
        magic = Path(f"/proc/self/fd/{file.fileno()}")
        assert magic.readlink() == tmp_path / "gone (deleted)"
        with pytest.raises(Unreachable):
            paths.open_following(str(magic))


def test_what_never_had_a_name_is_unreachable() -> None:
    fd = os.memfd_create("x")
    with contextlib.closing(os.fdopen(fd)), pytest.raises(Unreachable):
        paths.open_following(f"/proc/self/fd/{fd}")


@pytest.mark.root
def test_another_namespaces_mounts_are_unreachable(tmp_path: Path) -> None:
    (said,) = mount_namespace.run(
        """
        from reconciler.linux import paths
        top = Path(sys.argv[1])
        outside = os.open(top, os.O_PATH)
        # A second namespace, entered by us: what we opened before lies in the first.
        import ctypes
        assert ctypes.CDLL(None).unshare(0x20000) == 0
        try:
            paths.open_following(f"/proc/self/fd/{outside}")
        except paths.Unreachable as error:
            print(json.dumps([error.brief]))
        """,
        tmp_path,
    )
    assert "no path among our mounts" in said


@pytest.mark.root
def test_a_mount_that_is_not_shown_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (said,) = mount_namespace.run(
        """
        from reconciler.linux import paths
        top = Path(sys.argv[1])
        bind("/proc", top / "proc")
        os.chroot(top)
        try:
            paths.open_unlinked("/")
        except paths.Unreachable as error:
            print(json.dumps([error.brief]))
        """,
        tmp_path,
    )
    assert "no path among our mounts" in said


@pytest.mark.root
def test_a_folder_mounted_on_its_own_child_still_has_ancestors(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    above, root, same = mount_namespace.run(
        """
        from reconciler.linux import paths
        top = Path(sys.argv[1])
        bind(top / "a", top / "a/b")
        found = paths.open_unlinked(str(top / "a/b"))
        print(json.dumps([
            [each.inode for each in found.location.above],
            os.stat("/").st_ino,
            found.identity.inode == (top / "a").stat().st_ino,
        ]))
        """,
        tmp_path,
    )
    assert same
    assert root in above
    assert tmp_path.stat().st_ino in above


@pytest.mark.root
def test_a_mount_below_an_object_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "source/inner").mkdir(parents=True)
    (tmp_path / "elsewhere/deep").mkdir(parents=True)
    targets, inner, expected = mount_namespace.run(
        """
        from reconciler.linux import location, paths
        top = Path(sys.argv[1])
        bind(top / "elsewhere/deep", top / "source/inner")
        found = paths.open_unlinked(str(top / "source"))
        wanted = paths.open_unlinked(str(top / "elsewhere/deep"))
        print(json.dumps([
            [each.target for each in found.inner_mounts],
            list(found.location.inner),
            list(wanted.location.places),
        ]))
        """,
        tmp_path,
    )
    assert targets == [str(tmp_path / "source/inner")]
    assert inner == expected


@pytest.mark.slow
def test_a_swapped_component_leads_to_one_of_both_or_nowhere(tmp_path: Path) -> None:
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "inside").touch()
    good, bad = identity(tmp_path / "good/inside"), identity(tmp_path / "bad/inside")
    seen = set()
    with swapping(tmp_path / "name", "good", "bad"):
        for _ in range(1500):
            with opened(paths.open_following, tmp_path / "name/inside") as it:
                assert it.identity == identity(Path(it.location.path))
                seen.add(it.identity)
            with pytest.raises(LinkOnPath):
                paths.open_unlinked(str(tmp_path / "name/inside"))
    assert seen == {good, bad}, "the race never happened"


@contextlib.contextmanager
def swapping(link: Path, *targets: str) -> Iterator[None]:
    """Meanwhile `link` leads to one of `targets` after the other."""
    ending = threading.Event()
    draft = link.with_name("draft")

    def swap() -> None:
        while not ending.is_set():
            for target in targets:
                draft.symlink_to(target)
                draft.rename(link)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        while not link.is_symlink():
            pass
        yield
    finally:
        ending.set()
        thread.join(10)
