"""Files of a sandbox from Python: bytes, open files, and every way in which it can go wrong."""

from __future__ import annotations

import hashlib
import io
import os
import resource
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engine.archives.onefile import _split
from reconciler.errors import BoxError
from reconciler.sdk import (
    FileRefused,
    GuestFailed,
    NotAFile,
    NotFound,
    Refused,
    Sandbox,
    TimedOut,
    TooLarge,
)
from tests.conftest import short_folder
from tests.engine.archives.test_unpacking import FOLDER, HARD, LINK, archive, member
from tests.surfaces.sdk.conftest import Starter

MIB = 1 << 20
ODD = b"odd \xff\n" + b"n" * 200


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """What stands for a guest's file system."""
    (tmp_path / "file").write_bytes(b"\0data")
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nothing")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 3 * MIB + 7])
def test_what_is_written_is_read_again(box: Sandbox, there: Path, size: int) -> None:
    data = os.urandom(size)
    box.write_file(there / "new", data, 0o640)
    assert (there / "new").read_bytes() == data
    assert stat.S_IMODE((there / "new").stat().st_mode) == 0o640
    assert box.read_file(there / "new") == data


def test_names_are_any_bytes_and_relative_ones_start_where_commands_do(
    box: Sandbox, there: Path
) -> None:
    name = os.fsencode(there) + b"/" + ODD
    box.write_file(name, b"x")
    assert box.read_file(name) == box.read_file(os.fsdecode(name)) == b"x"
    assert os.fsencode(next(there.glob("odd*")).name) == ODD
    assert box.read_file(str(there / "file").lstrip("/")) == b"\0data"


def test_a_link_is_followed_when_read_and_replaced_when_written(box: Sandbox, there: Path) -> None:
    assert box.read_file(there / "link") == b"\0data"
    box.write_file(there / "link", b"new")
    assert not (there / "link").is_symlink()
    assert (there / "file").read_bytes() == b"\0data"


READING: dict[str, tuple[str, type[BoxError], str]] = {
    "missing": ("nothing", NotFound, "not_found"),
    "a link to nothing": ("dangling", NotFound, "not_found"),
    "below a file": ("file/x", NotFound, "not_found"),
    "a folder": ("folder", NotAFile, "not_a_file"),
    "a fifo": ("fifo", NotAFile, "not_a_file"),
    "a device": ("../../../../../dev/null", NotAFile, "not_a_file"),
    "too long a name": ("n" * 300, FileRefused, "file_refused"),
}


@pytest.mark.parametrize(("name", "kind", "code"), READING.values(), ids=READING)
def test_what_is_no_file_has_an_error_of_its_own(
    box: Sandbox, there: Path, name: str, kind: type[BoxError], code: str
) -> None:
    path = "/dev/null" if name.endswith("null") else there / name
    with pytest.raises(kind) as caught:
        box.read_file(path)
    assert caught.value.code == code


@pytest.mark.root
def test_the_users_rights_hold(box: Sandbox, there: Path) -> None:
    there.chmod(0o755)
    with pytest.raises(FileRefused, match="shadow") as caught:
        box.read_file("/etc/shadow", user="nobody")
    assert "Permission denied" in str(caught.value)
    with pytest.raises(FileRefused):
        box.write_file("/etc/new", b"x", user="nobody")
    with pytest.raises(FileRefused, match="refused") as caught:
        box.read_file(there / "file", user="no such user")
    assert "user" in str(caught.value.details)


WRITING: dict[str, tuple[str, type[BoxError]]] = {
    "a missing folder": ("no/new", NotFound),
    "below a file": ("file/new", NotFound),
    "a folder": ("folder", NotAFile),
    "a slash at the end": ("folder/", NotAFile),
    "dots": ("folder/..", NotAFile),
    "too long a name": ("n" * 300, FileRefused),
}


@pytest.mark.parametrize(("name", "kind"), WRITING.values(), ids=WRITING)
def test_where_no_file_can_be_nothing_is_written(
    box: Sandbox, there: Path, name: str, kind: type[BoxError]
) -> None:
    before = sorted(there.rglob("*"))
    with pytest.raises(kind):
        box.write_file(f"{there}/{name}", b"x")
    assert sorted(there.rglob("*")) == before


def test_a_file_larger_than_the_limit_is_refused_before_its_data(box: Sandbox, there: Path) -> None:
    with (there / "huge").open("wb") as file:
        file.truncate(1 << 30)
    into = io.BytesIO()
    with pytest.raises(TooLarge, match="1073741824 bytes"):
        box.read_file_into(there / "huge", into, limit_bytes=(1 << 30) - 1)
    assert into.getvalue() == b""
    with pytest.raises(TooLarge):
        box.read_file(there / "huge")
    with pytest.raises(TooLarge):
        box.write_file(there / "new", b"12345", limit_bytes=4)
    assert not (there / "new").exists()


class Digest(io.RawIOBase):
    """A file that keeps nothing."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def write(self, data: object) -> int:
        assert isinstance(data, bytes)
        self.sha256.update(data)
        return len(data)


@pytest.mark.slow
def test_a_large_file_streams_both_ways_in_little_memory(box: Sandbox, there: Path) -> None:
    size = 256 * MIB
    with (there / "large").open("wb") as file:
        file.truncate(size)
        file.write(os.urandom(MIB))
    with (there / "large").open("rb") as file:
        wanted = hashlib.file_digest(file, "sha256").hexdigest()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    into = Digest()
    assert box.read_file_into(there / "large", into, limit_bytes=size) == size  # type: ignore[arg-type]
    assert into.sha256.hexdigest() == wanted
    with (there / "large").open("rb") as file:
        file.seek(MIB)
        box.write_file(there / "copy", file)
    assert (there / "copy").stat().st_size == size - MIB
    # ru_maxrss is in KiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


def test_a_pipe_has_no_size_and_can_be_written_too(box: Sandbox, there: Path) -> None:
    for limit in (None, 70_000):
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as source:
            with os.fdopen(writing, "wb") as sink:
                sink.write(b"x" * 65_000)
            box.write_file(there / "new", source, limit_bytes=limit)
        assert (there / "new").read_bytes() == b"x" * 65_000


class Shrinking(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size)[:10] if self.tell() == 0 else b""


class Broken(io.BytesIO):
    def read(self, _size: int | None = -1, /) -> bytes:
        raise OSError("this one is the caller's")


def test_a_source_that_fails_is_told(box: Sandbox, there: Path) -> None:
    with pytest.raises(Refused, match="shorter"):
        box.write_file(there / "new", Shrinking(bytes(100_000)))
    with pytest.raises(OSError, match="the caller's"):
        box.write_file(there / "new", Broken(b"x"))
    with pytest.raises(TypeError):
        box.write_file(there / "new", "text")  # type: ignore[arg-type]
    with pytest.raises(Refused, match="mode"):
        box.write_file(there / "new", b"x", 0o4755)


def test_a_target_that_fails_is_told(box: Sandbox, there: Path) -> None:
    (there / "large").write_bytes(bytes(3 * MIB))
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OSError, match="space"):
        box.read_file_into(there / "large", full)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter."""
    folder = short_folder()
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.root
def test_a_folder_is_told_apart_from_what_cannot_be_read_in_it(
    box: Sandbox, open_folder: Path
) -> None:
    """What sends it fails too, at the file in it; that is not what was asked for."""
    (open_folder / "secret").touch(mode=0o600)
    with pytest.raises(FileRefused, match="Permission denied"):
        box.read_file(open_folder / "secret", user="nobody")
    with pytest.raises(NotAFile, match="folder"):
        box.read_file(open_folder, user="nobody")


HOSTILE = {
    "nothing": b"",
    "noise": os.urandom(4096),
    "an end": archive(),
    "two files": archive(member(b"f", data=b"1"), member(b"g", data=b"2")),
    "a file and a link": archive(member(b"f", data=b"1"), member(b"f", LINK, link=b"/etc/passwd")),
    "a link": archive(member(b"f", LINK, link=b"/etc/passwd")),
    "a hard link": archive(member(b"f", HARD, link=b"/etc/passwd")),
    "cut": archive(member(b"f", data=b"x" * 5000))[:3000],
    "cut in the padding": member(b"f", data=b"x" * 5000)[:-1],
    "more behind its end": archive(member(b"f", data=b"x")) + bytes(3 * MIB),
    "headers without end": member(b"n" * 200)[:1024] * 40 + archive(member(b"f", data=b"x")),
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_a_guest_that_lies_gets_nowhere(
    seems_up: Starter, tmp_path: Path, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "answer").write_bytes(answer)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with seems_up(tmp_path / "answer") as box:
        with pytest.raises(GuestFailed) as caught:
            box.read_file("f")
        assert caught.value.code == "guest_failed"
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_bomb_stops_at_the_limit(seems_up: Starter, tmp_path: Path) -> None:
    """It says that it is small, and in truth it is not."""
    data = archive(member(b"f", data=bytes(100)))
    (tmp_path / "answer").write_bytes(data + bytes(64 * MIB))
    with seems_up(tmp_path / "answer") as box, pytest.raises(GuestFailed, match="whole file"):
        box.read_file("f", limit_bytes=1000)
    (tmp_path / "answer").write_bytes(member(b"f", data=bytes(64 * MIB)))
    with seems_up(tmp_path / "answer") as box, pytest.raises(TooLarge):
        box.read_file("f", limit_bytes=1000)


def test_a_guests_folder_is_no_file(seems_up: Starter, tmp_path: Path) -> None:
    (tmp_path / "answer").write_bytes(archive(member(b"f", FOLDER), member(b"f/x", data=b"x")))
    with seems_up(tmp_path / "answer") as box, pytest.raises(NotAFile):
        box.read_file("f")


def test_a_time_limit_ends_a_file_too(box: Sandbox, there: Path) -> None:
    with (there / "endless").open("wb") as file:
        file.truncate(1 << 33)

    class Nowhere(io.RawIOBase):
        def write(self, data: object) -> int:
            assert isinstance(data, bytes)
            return len(data)

    with pytest.raises(TimedOut) as caught:
        box.read_file_into(there / "endless", Nowhere(), limit_bytes=1 << 40, timeout=0.2)  # type: ignore[arg-type]
    assert caught.value.code == "timed_out"


@pytest.mark.parametrize(
    ("path", "parts"),
    [("/f", ("/", b"f")), ("f", ("./", b"f")), ("/a/b", ("/a/", b"b")), ("a//b", ("a//", b"b"))],
)
def test_the_folder_ends_with_a_slash(path: str, parts: tuple[str, bytes]) -> None:
    assert _split(path) == parts


def test_a_limit_below_nothing_is_refused_before_anything(home: Path) -> None:
    box = Sandbox("web", home)
    for call in (
        lambda: box.read_file("/f", limit_bytes=-1),
        lambda: box.read_file_into("/f", io.BytesIO(), limit_bytes=-1),
        lambda: box.write_file("/f", b"", limit_bytes=-1),
    ):
        with pytest.raises(Refused, match="-1"):
            call()
