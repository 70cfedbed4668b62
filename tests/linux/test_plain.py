from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.engine import journal
from reconciler.linux import appending, files, plain


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(os.path.relpath(path))


OTHERS: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "folder": Path.mkdir,
    "link": lambda path: path.symlink_to(__file__),
    "link to nothing": lambda path: path.symlink_to("nothing"),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "socket": listening,
}


@pytest.fixture(params=OTHERS)
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "other"
    OTHERS[request.param](path)
    return path


@pytest.mark.timeout(20)
def test_what_is_no_regular_file_is_neither_read_nor_waited_for(other: Path) -> None:
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT | os.O_APPEND):
        with pytest.raises(plain.NotPlain, match="not a regular file"):
            plain.open_plain(other, flags)
    with pytest.raises(files.BrokenFile, match="not a file of ours"):
        files.read_json(other)
    with pytest.raises(plain.NotPlain):
        appending.append(other, b"x", 100)
    with pytest.raises(plain.NotPlain):
        appending.Reader(other)


def test_a_file_is_read_whole_up_to_the_limit_and_refused_beyond(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 3000)
    assert plain.read_plain(path, 3000) == b"x" * 3000
    with pytest.raises(plain.NotPlain, match="larger than 2999 bytes"):
        plain.read_plain(path, 2999)
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(files.BrokenFile) as caught:
        files.read_json(path)
    assert "larger than" in str(caught.value.details)


def test_nothing_there_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        plain.read_plain(tmp_path / "nothing")


def test_a_new_file_is_private(tmp_path: Path) -> None:
    os.close(plain.open_plain(tmp_path / "new", os.O_RDWR | os.O_CREAT))
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


def test_a_folder_in_the_way_of_a_write_is_named_and_nothing_left(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(plain.NotPlain, match=f"{tmp_path}/state"):
        files.write_atomic(tmp_path / "state", b"x")
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


@pytest.mark.timeout(20)
def test_a_log_with_a_hole_in_it_is_read_from_near_its_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.seek(1 << 40)
        file.write(b"\nlast\n")
    reader = appending.Reader(path)
    data = b"".join(iter(reader.read, b""))
    reader.close()
    assert data.endswith(b"\nlast\n")
    assert len(data) <= 1 << 24


@pytest.mark.timeout(20)
def test_events_with_a_hole_end_there_and_take_no_more(tmp_path: Path) -> None:
    journal.record(tmp_path, "web", "Normal", "First", "")
    path = tmp_path / "events.jsonl"
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    assert [each["reason"] for each in journal.read_events(tmp_path)] == ["First"]
    assert journal.verify(tmp_path).broken_line == 2
    with pytest.raises(OSError, match="no event"):
        journal.record(tmp_path, "web", "Normal", "Second", "")
    assert path.stat().st_size == 1 << 40


def test_an_event_without_a_bottom_is_none(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(b"[" * 200_000 + b"\n")
    assert list(journal.read_events(tmp_path)) == []
    assert journal.verify(tmp_path).broken_line == 1
