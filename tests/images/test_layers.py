from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.images.layers import NEEDED_DIRECTORIES, MergedLayers, merge
from reconciler.images.oci import open_archive
from reconciler.images.tar import BadArchive, Kind
from reconciler.images.tarwriter import END
from tests.images.archives import (
    Member,
    file,
    folder,
    hard_link,
    image_archive,
    layer,
    layout,
    raw_member,
    special,
    symlink,
)


@contextlib.contextmanager
def merged(path: Path, *layers: bytes) -> Iterator[MergedLayers]:
    with open_archive(image_archive(path / "image.tar", *layers)) as image:
        yield merge(image.layers)


@dataclass(frozen=True)
class Flat:
    """The flat stream as tarfile reads it, without the directories that box added."""

    members: dict[bytes, tarfile.TarInfo]
    data: dict[bytes, bytes]


def flat(path: Path, *layers: bytes) -> Flat:
    stream = io.BytesIO()
    with merged(path, *layers) as tree:
        tree.write(stream)
    stream.seek(0)
    members: dict[bytes, tarfile.TarInfo] = {}
    data: dict[bytes, bytes] = {}
    with tarfile.open(fileobj=stream) as archive:
        for member in archive.getmembers():
            name = os.fsencode(member.name)
            if name not in NEEDED_DIRECTORIES:
                members[name] = member
            extracted = archive.extractfile(member) if member.isreg() or member.islnk() else None
            if extracted is not None:
                data[name] = extracted.read()
    return Flat(members, data)


def contents(path: Path, *layers: bytes) -> dict[bytes, bytes]:
    """Return what every file of the flat stream holds."""
    return flat(path, *layers).data


def test_one_layer_comes_out_as_it_went_in(tmp_path: Path) -> None:
    members = flat(
        tmp_path,
        layer(
            folder(b"./etc/", 0o750, uid=3, gid=4),
            file(b"./etc/a", b"data", mode=0o4755, uid=1000, gid=2000),
            symlink(b"etc/l", b"../../../../etc/shadow"),
            special(b"etc/fifo", Kind.FIFO),
        ),
    ).members
    assert list(members) == [b"etc", b"etc/fifo", b"etc/l", b"etc/a"]
    assert (members[b"etc"].mode, members[b"etc"].uid, members[b"etc"].gid) == (0o750, 3, 4)
    a = members[b"etc/a"]
    assert (a.mode, a.uid, a.gid, a.size) == (0o4755, 1000, 2000, 4)
    assert members[b"etc/l"].linkname == "../../../../etc/shadow", "a target is the guest's affair"
    assert members[b"etc/fifo"].isfifo()


def test_upper_layers_replace_and_delete(tmp_path: Path) -> None:
    lower = layer(folder(b"d"), file(b"d/a", b"1"), file(b"d/b", b"1"), file(b"d/c", b"1"))
    upper = layer(file(b"d/.wh.a"), file(b"d/b", b"2"), file(b"d/.wh.never-there"))
    assert contents(tmp_path, lower, upper) == {b"d/b": b"2", b"d/c": b"1"}


def test_a_whiteout_takes_a_directory_with_all_below(tmp_path: Path) -> None:
    lower = layer(folder(b"d"), folder(b"d/e"), file(b"d/e/f", b"1"), file(b"keep", b"1"))
    assert list(flat(tmp_path, lower, layer(file(b".wh.d"))).members) == [b"keep"]


@pytest.mark.parametrize("whiteout_first", [True, False])
def test_a_whiteout_is_about_lower_layers_only(tmp_path: Path, *, whiteout_first: bool) -> None:
    lower = layer(folder(b"d"), file(b"d/a", b"1"))
    members = [file(b"d/.wh.a"), file(b"d/a", b"2")]
    upper = layer(*(members if whiteout_first else reversed(members)))
    assert contents(tmp_path, lower, upper) == {b"d/a": b"2"}


@pytest.mark.parametrize("opaque_first", [True, False])
def test_an_opaque_directory_hides_what_is_below(tmp_path: Path, *, opaque_first: bool) -> None:
    lower = layer(folder(b"d", 0o700), file(b"d/old", b"1"))
    upper = [file(b"d/.wh..wh..opq"), file(b"d/new", b"2")]
    changes = layer(*(upper if opaque_first else reversed(upper)))
    members = flat(tmp_path, lower, changes).members
    assert list(members) == [b"d", b"d/new"]
    assert members[b"d"].mode == 0o700


def test_bookkeeping_of_old_tools_is_left_out(tmp_path: Path) -> None:
    found = contents(tmp_path, layer(folder(b".wh..wh.plnk"), file(b".wh..wh.aufs"), file(b"a")))
    assert list(found) == [b"a"]


def test_types_may_change_from_layer_to_layer(tmp_path: Path) -> None:
    lower = layer(folder(b"x"), file(b"x/in", b"1"), file(b"y", b"1"), symlink(b"z", b"/etc"))
    upper = layer(file(b"x", b"2"), folder(b"y"), file(b"y/in", b"2"), folder(b"z"), file(b"z/f"))
    members = flat(tmp_path, lower, upper).members
    assert {name: m.type for name, m in members.items()} == {
        b"x": b"0",
        b"y": b"5",
        b"y/in": b"0",
        b"z": b"5",
        b"z/f": b"0",
    }


def test_the_last_of_two_members_of_one_name_counts(tmp_path: Path) -> None:
    assert contents(tmp_path, layer(file(b"a", b"1"), file(b"a", b"2"))) == {b"a": b"2"}


def test_a_directory_met_again_keeps_its_contents_and_takes_the_new_mode(tmp_path: Path) -> None:
    members = flat(tmp_path, layer(folder(b"d"), file(b"d/a")), layer(folder(b"d", 0o700))).members
    assert members[b"d"].mode == 0o700
    assert b"d/a" in members


def test_hard_links_survive_within_and_across_layers(tmp_path: Path) -> None:
    lower = layer(file(b"a", b"data", mode=0o755, uid=5), hard_link(b"b", b"a"))
    upper = layer(hard_link(b"c", b"./b"))
    members = flat(tmp_path, lower, upper).members
    assert members[b"a"].isreg()
    assert [(members[name].islnk(), members[name].linkname) for name in (b"b", b"c")] == [
        (True, "a")
    ] * 2


def test_a_link_keeps_the_contents_when_its_first_name_goes(tmp_path: Path) -> None:
    lower = layer(file(b"a", b"old"), hard_link(b"b", b"a"))
    assert contents(tmp_path, lower, layer(file(b".wh.a"))) == {b"b": b"old"}
    assert contents(tmp_path, lower, layer(file(b"a", b"new"))) == {b"a": b"new", b"b": b"old"}


def test_names_are_bytes(tmp_path: Path) -> None:
    names = [b"\xff\xfe", b"new\nline", b"-rf", b" ", b"\x1b[31m", b"d/\xc3(", b"n" * 255]
    found = contents(tmp_path, layer(*(file(name, b"x") for name in names)))
    assert sorted(found) == sorted(names)


def test_an_empty_layer_changes_nothing(tmp_path: Path) -> None:
    assert contents(tmp_path, layer(file(b"a", b"1")), b"", layer(), END * 10) == {b"a": b"1"}


def test_an_image_of_no_layers_has_the_mount_points(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with merged(tmp_path) as tree:
        tree.write(stream)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        found = {m.name.encode(): m.mode for m in archive.getmembers() if m.isdir()}
    assert found == NEEDED_DIRECTORIES
    assert found[b"tmp"] == 0o1777


def test_a_mount_point_of_another_type_gives_way_and_is_told(tmp_path: Path) -> None:
    with merged(tmp_path, layer(symlink(b"data", b"/etc"), folder(b"tmp", 0o700))) as tree:
        stream = io.BytesIO()
        tree.write(stream)
    assert tree.notes == ["/data of the image gave way to a directory"]
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        assert archive.getmember("data").isdir()
        assert archive.getmember("tmp").mode == 0o700, "a directory of the image's stays as it is"


def test_devices_are_left_out_and_told(tmp_path: Path) -> None:
    devices = [special(b"dev/sda", Kind.BLOCK_DEVICE), special(b"mem", Kind.CHARACTER_DEVICE)]
    with merged(tmp_path, layer(*devices, file(b"a"))) as tree:
        stream = io.BytesIO()
        tree.write(stream)
    assert tree.notes == ["left out 2 devices (/dev/sda, ...): a guest has its own /dev"]
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        assert not [m.name for m in archive.getmembers() if m.isdev()]


@pytest.mark.parametrize(
    "members",
    [
        [file(b"/etc/x")],
        [file(b"../x")],
        [file(b"a/../../x")],
        [folder(b"a/..")],
        [symlink(b"d", b".."), file(b"d/file")],
        [symlink(b"d", b"."), folder(b"d/e"), file(b"d/e/f")],
        [file(b"f"), file(b"f/below")],
        [symlink(b"d", b"/"), hard_link(b"l", b"d/etc/shadow")],
        [hard_link(b"l", b"/etc/shadow")],
        [hard_link(b"l", b"../../etc/shadow")],
        [hard_link(b"l", b"not-there")],
        [folder(b"d"), hard_link(b"l", b"d")],
        [hard_link(b"l", b"l")],
        [special(b"sda", Kind.BLOCK_DEVICE), hard_link(b"l", b"sda")],
        [file(b".wh.")],
        [file(b"d/.wh...")],
        [file(b".wh..")],
        [file(b".")],
        [symlink(b".", b"/etc")],
        [file(b"n" * 256)],
        [file(b"d/" * 300 + b"f")],
    ],
    ids=lambda members: ascii(b" ".join(m[0].name for m in members)[:30]),
)
def test_nonsense_is_refused_with_a_reason(tmp_path: Path, members: list[Member]) -> None:
    good = layer(file(b"good", b"1"))
    with (
        pytest.raises(BadArchive) as caught,
        merged(tmp_path, good, layer(*members), good) as tree,
    ):
        pytest.fail(f"taken: {tree.root}")
    assert caught.value.brief
    assert "\x1b" not in str(caught.value)


def test_links_cannot_be_nested_into_a_way_out(tmp_path: Path) -> None:
    """CVE-2025-4517 and its kin: long chains of links until realpath(3) gives up."""
    members: list[Member] = []
    where = b""
    for letter in b"abcdefghijklmnop":
        deep = bytes([letter]) * 247
        members += [folder(where + deep), symlink(where + bytes([letter]), deep)]
        where += deep + b"/"
    chain = b"/".join(bytes([letter]) for letter in b"abcdefghijklmnop")
    members += [symlink(chain + b"/" + b"l" * 254, b"../" * 16)]
    with pytest.raises(BadArchive), merged(tmp_path, layer(*members)):
        pytest.fail("taken")


def test_a_member_that_is_no_file_carries_no_data(tmp_path: Path) -> None:
    data = raw_member(b"d", b"5", b"00000001000\0") + raw_member(b"after", b"0", data=b"x") + END
    assert contents(tmp_path, data) == {b"after": b"x"}


@pytest.mark.slow
def test_many_files_are_read_in_reasonable_time(tmp_path: Path) -> None:
    count = 20_000
    data = layer(*(file(b"d%d/f%d" % (n % 100, n), b"x") for n in range(count)))
    assert len(contents(tmp_path, data)) == count


def test_a_layer_that_changes_between_its_readings_is_noticed(tmp_path: Path) -> None:
    data = layer(file(b"a", b"A" * 600))
    path = layout([data]).pack(tmp_path / "image.tar")
    with open_archive(path) as image:
        tree = merge(image.layers)
        whole = path.read_bytes()
        path.write_bytes(whole.replace(b"A" * 600, b"B" * 600))
        with pytest.raises(BadArchive, match="digest"):
            tree.write(io.BytesIO())


def test_members_of_concatenated_gzip_are_one_layer(tmp_path: Path) -> None:
    data = layer(file(b"a", b"1" * 3000), file(b"b", b"2"))
    parts = b"".join(gzip.compress(data[n : n + 512]) for n in range(0, len(data), 512))
    with open_archive(layout([parts]).pack(tmp_path / "image.tar")) as image:
        tree = merge(image.layers)
        stream = io.BytesIO()
        tree.write(stream)
    assert b"1" * 3000 in stream.getvalue()
