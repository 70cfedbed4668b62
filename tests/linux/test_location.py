from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.linux import location
from reconciler.linux.location import Identity, Location, Place
from tests.linux import mount_namespace

NOTHING = Location("/x", None, frozenset(), frozenset(), frozenset())


def identity(path: Path) -> Identity:
    return location.identity_of(path.stat())


def thing(
    *places: str, own: int | None = None, above: tuple[int, ...] = (), inner: tuple[str, ...] = ()
) -> Location:
    return Location(
        "/x",
        None if own is None else Identity(1, own),
        frozenset(Identity(1, inode) for inode in above),
        frozenset(Place("8:1", path) for path in places),
        frozenset(Place("8:1", path) for path in inner),
    )


@pytest.mark.parametrize(
    ("path", "directory", "within"),
    [
        ("/a", "/a", True),
        ("/a/b", "/a", True),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
        ("/a", "/", True),
        ("/", "/", True),
        ("/", "/a", False),
    ],
)
def test_a_path_is_within_a_directory_by_whole_names(
    path: str, directory: str, *, within: bool
) -> None:
    assert location.is_within(path, directory) is within


def test_places_of_different_devices_have_nothing_in_common() -> None:
    assert Place("8:1", "/a").holds(Place("8:1", "/a/b"))
    assert not Place("8:1", "/a").holds(Place("8:2", "/a/b"))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (thing(own=1), thing(own=1), "is"),
        (thing(own=2, above=(1,)), thing(own=1), "is inside"),
        (thing(own=1), thing(own=2, above=(1,)), "contains"),
        (thing(own=1), thing(own=2), None),
        (thing("/a"), thing("/a"), "is"),
        (thing("/a/b"), thing("/a"), "is inside"),
        (thing("/a"), thing("/a/b"), "contains"),
        (thing("/a"), thing("/ab"), None),
        (thing("/a"), thing("/hidden", "/a"), "is"),
        (thing("/s", inner=("/a",)), thing("/a"), "contains"),
        (thing("/s", inner=("/a/b",)), thing("/a"), "contains"),
        (thing("/s", inner=("/",)), thing("/a"), "contains"),
        (thing("/m/b"), thing("/a", inner=("/m",)), "is inside"),
        (thing("/m"), thing("/a", inner=("/m/b",)), "contains"),
        (NOTHING, NOTHING, None),
    ],
)
def test_one_is_contains_or_lies_inside_another(
    one: Location, other: Location, expected: str | None
) -> None:
    assert one.relation(other) == expected


def test_what_exists_is_located_through_every_link(tmp_path: Path) -> None:
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (found,) = location.locate(f"{tmp_path}/link//./deep", location.read_mounts())
    assert found.path == str(tmp_path / "real/deep")
    assert found.identity == identity(tmp_path / "real/deep")
    assert {identity(tmp_path / "real"), identity(tmp_path), identity(Path("/"))} <= found.above
    assert found.identity not in found.above


def test_a_link_is_located_beside_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    found = location.locate(str(tmp_path / "link"), location.read_mounts())
    assert [each.path for each in found] == [str(tmp_path / name) for name in ("real", "link")]


@pytest.mark.parametrize("name", ["missing/deep", "loop", "loop/deep", "file/deep", "x" * 300])
def test_what_is_not_there_is_located_by_what_it_would_lie_in(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    found = location.locate(str(tmp_path / name), location.read_mounts())[0]
    assert found.identity is None or found.path == str(tmp_path / "loop")
    assert identity(tmp_path) in found.above
    assert any(place.path.endswith(f"/{name}") for place in found.places)


def test_the_root_lies_in_nothing() -> None:
    (root,) = location.locate("/", location.read_mounts())
    assert (root.path, root.identity, root.above) == ("/", identity(Path("/")), frozenset())
    assert {place.path for place in root.inner} >= {"/"}


@pytest.mark.root
def test_a_mount_hides_a_place_and_gives_another(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    found = mount_namespace.run(
        """
        from reconciler.linux import location
        top = Path(sys.argv[1])
        where = lambda path: location.locate(str(path), location.read_mounts())[0]
        before = where(top / "a/b")
        mount("-t", "tmpfs", "none", top / "a")
        (top / "a/b/in").mkdir(parents=True)
        mount("-t", "tmpfs", "-o", "size=1m", "none", top / "a/b/in")
        after = where(top / "a/b")
        print(json.dumps([
            before.places < after.places,
            sorted(place.path for place in after.places - before.places),
            before.identity != after.identity,
            [place.path for place in after.inner],
        ]))
        """,
        tmp_path,
    )
    assert found == [True, ["/b"], True, ["/"]]


def test_a_place_is_told_by_mountinfo_not_by_stat() -> None:
    # Where the two number a device differently (btrfs, overlayfs), a mix of them matches nothing.
    devices = {entry.device for entry in location.read_mounts()}
    (found,) = location.locate(os.path.realpath("/usr/bin"), location.read_mounts())
    assert found.places
    assert {place.device for place in found.places} <= devices
