"""Streams of hostile guests: everything refused, nothing left, nothing outside touched."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.engine.archives import placing, relaying, unpacking
from reconciler.engine.archives.pipes import Stream
from reconciler.engine.archives.unpacking import Unpacked
from reconciler.errors import Missing, Refused
from reconciler.images.tar import BadArchive, Header, Kind, padding
from reconciler.images.tarwriter import END, encode

FILE, LINK, HARD, FOLDER = Kind.FILE, Kind.SYMLINK, Kind.HARD_LINK, Kind.DIRECTORY


def member(
    name: bytes, kind: Kind = FILE, *, data: bytes = b"", link: bytes = b"", mode: int = 0o644
) -> bytes:
    header = Header(name, kind, mode, size=len(data), link=link, mtime=1_000_000_000,
                    xattrs=((b"user.x", b"y"),))  # fmt: skip
    return encode(header) + data + b"\0" * padding(len(data))


def archive(*members: bytes) -> bytes:
    return b"".join(members) + END


@contextlib.contextmanager
def stream(data: bytes) -> Iterator[Stream]:
    fd = os.memfd_create("archive")
    try:
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
        yield Stream(fd)
    finally:
        os.close(fd)


def copy(data: bytes, target: str) -> Unpacked:
    """Do what cp does with what a guest sent."""
    with (
        stream(data) as source,
        placing.destination(target) as place,
        placing.beside(place) as temporary,
    ):
        unpacked = unpacking.unpack(source, temporary)
        placing.put(unpacked, temporary, place)
        return unpacked


def relayed(data: bytes) -> bytes:
    out = os.memfd_create("out")
    try:
        with stream(data) as source:
            relaying.relay(source, out)
        return os.pread(out, 1 << 24, 0)
    finally:
        os.close(out)


TOP = member(b"t", FOLDER, mode=0o755)
PLANTED = member(b"t/l", LINK, link=b"..")
REFUSED = {
    "absolute": archive(member(b"/tmp/x")),
    "climbs": archive(TOP, member(b"t/../../x")),
    "climbs at once": archive(member(b"..", FOLDER)),
    "through a planted link": archive(TOP, PLANTED, member(b"t/l/secret")),
    "over a planted link": archive(TOP, PLANTED, member(b"t/l", data=b"x")),
    "a folder over a planted link": archive(TOP, PLANTED, member(b"t/l", FOLDER)),
    "a link over a planted link": archive(TOP, PLANTED, PLANTED),
    "a hard link over a planted link": archive(
        TOP, member(b"t/f"), PLANTED, member(b"t/l", HARD, link=b"t/f")
    ),
    "a hard link to outside": archive(TOP, member(b"t/h", HARD, link=b"../secret")),
    "an absolute hard link": archive(TOP, member(b"t/h", HARD, link=b"/etc/passwd")),
    "a hard link through a link": archive(TOP, PLANTED, member(b"t/h", HARD, link=b"t/l/secret")),
    "a hard link to a link": archive(TOP, PLANTED, member(b"t/h", HARD, link=b"t/l")),
    "a character device": archive(TOP, member(b"t/d", Kind.CHARACTER_DEVICE)),
    "a block device": archive(TOP, member(b"t/d", Kind.BLOCK_DEVICE)),
    "a fifo": archive(TOP, member(b"t/p", Kind.FIFO)),
    "a fifo alone": archive(member(b"p", Kind.FIFO)),
    "cut in a header": archive(TOP, member(b"t/f", data=b"x" * 600))[:700],
    "cut in the data": archive(TOP, member(b"t/f", data=b"x" * 6000))[:3000],
    "noise": b"\xff" * 4096,
    "endless zeros": archive(TOP) + bytes(2 << 20),
}
ONLY_UNPACKED = {
    "twice": archive(TOP, member(b"t/f"), member(b"t/f")),
    "a folder twice": archive(TOP, TOP),
    "two things": archive(member(b"a"), member(b"b")),
    "a file and what lies in it": archive(member(b"t"), member(b"t/x")),
    "in no folder": archive(TOP, member(b"t/a/b")),
    "a hard link to nothing": archive(TOP, member(b"t/h", HARD, link=b"t/no")),
    "a hard link to a folder": archive(TOP, member(b"t/h", HARD, link=b"t")),
    "a hard link to the top": archive(member(b".", FOLDER), member(b"h", HARD, link=b".")),
    "a link to nowhere": archive(TOP, member(b"t/l", LINK)),
    "a top that is a file": archive(member(b".")),
    "too deep": archive(TOP, *(member(b"t" + b"/d" * n, FOLDER) for n in range(1, 300))),
    "empty": END,
    "nothing at all": b"",
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that holds the destination `in`, and a secret that nothing may change."""
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "in").mkdir()
    return tmp_path


@pytest.mark.parametrize("name", ["new", ""])
@pytest.mark.parametrize("data", [*REFUSED.values(), *ONLY_UNPACKED.values()],
                         ids=[*REFUSED, *ONLY_UNPACKED])  # fmt: skip
def test_the_whole_archive_is_refused(outside: Path, data: bytes, name: str) -> None:
    with pytest.raises(BadArchive):
        copy(data, f"{outside}/in/{name}")
    assert list((outside / "in").iterdir()) == []
    assert {path.name for path in outside.iterdir()} == {"secret", "in"}
    assert (outside / "secret").read_bytes() == b"secret"
    assert (outside / "secret").stat().st_nlink == 1


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_no_stream_passes_it_on_whole(data: bytes) -> None:
    if data == REFUSED["a hard link to a link"]:
        assert b"t/h" not in _names_or_refusal(data)
        return
    with pytest.raises(BadArchive):
        relayed(data)


def _names_or_refusal(data: bytes) -> bytes:
    try:
        return relayed(data)
    except BadArchive:
        return b""


def test_what_is_kept_and_what_is_not(outside: Path) -> None:
    data = archive(
        member(b"t", FOLDER, mode=0o1755),
        member(b"t/suid", data=b"x", mode=0o6755),
        member(b"t/link", LINK, link=b"/etc/passwd"),
        member(b"t/same", HARD, link=b"t/suid"),
        member(b"t/shut", FOLDER, mode=0o2500),
        member(b"t/shut/f", mode=0o000),
        member(b"t/" + b"\xff\n" + b"n" * 200, data=b"y"),
    )
    copy(data, f"{outside}/in/new")
    new = outside / "in" / "new"
    modes = {p.name: stat.S_IMODE(p.lstat().st_mode) for p in [new, *new.rglob("*")]}
    assert modes["new"] == 0o755
    assert modes["suid"] == 0o755
    assert modes["shut"] == 0o500
    assert modes["f"] == 0
    assert (new / "link").readlink() == Path("/etc/passwd")
    assert (new / "same").samefile(new / "suid")
    assert os.listxattr(new / "suid") == []
    assert os.fsdecode(b"\xff\n" + b"n" * 200) in modes
    assert {int(p.lstat().st_mtime) for p in [new, new / "suid", new / "shut"]} == {1_000_000_000}
    assert [path.name for path in (outside / "in").iterdir()] == ["new"]


def test_a_relayed_stream_is_plain(outside: Path) -> None:
    data = archive(member(b"./t/", FOLDER, mode=0o4755), member(b"./t//f", data=b"x", mode=0o6777))
    again = relayed(data + bytes(8192))
    assert b"user.x" not in again
    copy(again, f"{outside}/in")
    assert stat.S_IMODE((outside / "in/t/f").stat().st_mode) == 0o777


def test_the_content_of_a_folder_joins_the_folder_or_becomes_it(outside: Path) -> None:
    data = archive(member(b".", FOLDER, mode=0o711), member(b"f", data=b"1"), member(b"d", FOLDER))
    (outside / "in" / "old").write_bytes(b"old")
    copy(data, f"{outside}/in")
    assert {path.name for path in (outside / "in").iterdir()} == {"old", "f", "d"}
    copy(data, f"{outside}/in/new")
    assert {path.name for path in (outside / "in" / "new").iterdir()} == {"f", "d"}
    assert stat.S_IMODE((outside / "in/new").stat().st_mode) == 0o711


def test_a_folder_joins_a_folder(outside: Path) -> None:
    old = outside / "in" / "t"
    (old / "sub").mkdir(parents=True, mode=0o700)
    (old / "sub").chmod(0o700)
    (old / "sub" / "kept").write_bytes(b"kept")
    (old / "file").write_bytes(b"old")
    (old / "link").symlink_to(outside / "secret")
    data = archive(
        member(b"t", FOLDER, mode=0o500), member(b"t/sub", FOLDER, mode=0o555),
        member(b"t/sub/new", data=b"new"), member(b"t/file", data=b"new"),
        member(b"t/link", data=b"new"), member(b"t/shut", FOLDER, mode=0o111),
    )  # fmt: skip
    copy(data, f"{outside}/in")
    assert {path.name for path in (old / "sub").iterdir()} == {"kept", "new"}
    assert (old / "file").read_bytes() == (old / "link").read_bytes() == b"new"
    assert not (old / "link").is_symlink()
    assert stat.S_IMODE((old / "sub").stat().st_mode) == 0o700
    assert stat.S_IMODE((old / "shut").stat().st_mode) == 0o111
    assert (outside / "secret").read_bytes() == b"secret"


@pytest.mark.parametrize("there", ["a file", "a link", "a folder"])
def test_what_does_not_fit_moves_nothing(outside: Path, there: str) -> None:
    place = outside / "in" / "t"
    place.mkdir()
    if there == "a file":
        (place / "z").write_bytes(b"old")
    elif there == "a link":
        (place / "z").symlink_to(outside)
    else:
        (place / "z").mkdir()
    last = member(b"t/z") if there == "a folder" else member(b"t/z", FOLDER)
    data = archive(TOP, member(b"t/a"), last)
    with pytest.raises(Refused, match="Nothing was copied"):
        copy(data, f"{outside}/in")
    assert [path.name for path in place.iterdir()] == ["z"]
    assert [path.name for path in (outside / "in").iterdir()] == ["t"]


def test_a_link_at_the_end_is_followed_with_a_slash_only(outside: Path) -> None:
    link = outside / "link"
    link.symlink_to("in")
    one = archive(member(b"f", data=b"x"))
    with pytest.raises(Refused, match="links are not followed"):
        copy(one, str(link))
    assert list((outside / "in").iterdir()) == []
    copy(one, f"{link}/")
    assert (outside / "in" / "f").read_bytes() == b"x"


def test_names_and_folders_that_are_not_there(outside: Path) -> None:
    one = archive(member(b"f", data=b"x"))
    copy(one, f"{outside}/in/g")
    copy(one, f"{outside}/in/g")
    assert [path.name for path in (outside / "in").iterdir()] == ["g"]
    for path in ("no/f", "in/no/", "secret/f"):
        with pytest.raises(Missing):
            copy(one, f"{outside}/{path}")
    copy(archive(TOP), f"{outside}/in/made/")
    assert {path.name for path in (outside / "in").iterdir()} == {"g", "made"}


def test_a_full_disk_leaves_nothing(outside: Path) -> None:
    data = archive(TOP, member(b"t/a", data=b"x" * 100), member(b"t/b", data=b"x" * 100_000))
    with stream(data) as source, placing.destination(f"{outside}/in") as place:
        before = resource_limit(50_000)
        try:
            with pytest.raises(OSError, match="too large"), placing.beside(place) as temporary:
                unpacking.unpack(source, temporary)
        finally:
            resource_limit(before)
    assert list((outside / "in").iterdir()) == []


def resource_limit(size: int) -> int:
    """Let files grow to this size at most; what the limit was."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    return soft


_NAMES = st.sampled_from([b"t", b"t/a", b"t/a/b", b"t/l", b"t/l/x", b".", b"t/../x", b"/x", b"u"])
_MEMBERS = st.tuples(_NAMES, st.sampled_from(list(Kind)), _NAMES, st.binary(max_size=600))


@given(members=st.lists(_MEMBERS, max_size=8), noise=st.binary(max_size=600), at=st.integers(0))
@settings(max_examples=200, deadline=None)
def test_nothing_outside_is_touched_whatever_comes(
    tmp_path_factory: pytest.TempPathFactory,
    members: list[tuple[bytes, Kind, bytes, bytes]],
    noise: bytes,
    at: int,
) -> None:
    outside = tmp_path_factory.mktemp("fuzz")
    (outside / "in").mkdir()
    data = archive(
        *(
            member(name, kind, link=link, data=data if kind is FILE else b"")
            for name, kind, link, data in members
        )
    )
    at %= len(data)
    data = data[:at] + noise + data[at:]
    with contextlib.suppress(BadArchive, OSError):
        copy(data, f"{outside}/in/new")
    with contextlib.suppress(BadArchive):
        relayed(data)
    assert [path.name for path in outside.iterdir()] == ["in"]
    assert {path.name for path in (outside / "in").iterdir()} <= {"new"}
