from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.boxfile.problems import InvalidBoxfile
from reconciler.boxfile.text import MAX_BYTES
from reconciler.engine.declaration import (
    BeingWritten,
    NotHere,
    NotRead,
    declare,
    read_below,
    read_file,
)

LEAST = b"base: builtin:busybox\nnetwork: none\n"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    path = tmp_path / "desired"
    path.mkdir()
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    yield path, fd
    os.close(fd)


def refusal(directory: int, relative: str) -> str:
    with pytest.raises(NotRead) as refused:
        read_below(directory, relative)
    return refused.value.reason


def test_a_file_is_read_in_place_and_below(folder: tuple[Path, int]) -> None:
    path, fd = folder
    (path / "web.Boxfile").write_bytes(LEAST)
    (path / "db").mkdir()
    (path / "db" / "Boxfile").write_bytes(LEAST)
    assert read_below(fd, "web.Boxfile") == read_below(fd, "db/Boxfile") == LEAST
    assert read_file(path / "web.Boxfile") == read_file(path / "db" / "Boxfile") == LEAST


def test_what_is_no_regular_file_is_refused_without_waiting(folder: tuple[Path, int]) -> None:
    path, fd = folder
    os.mkfifo(path / "fifo.Boxfile")
    (path / "dir.Boxfile").mkdir()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path / "sock.Boxfile"))
    (path / "zero.Boxfile").symlink_to("/dev/zero")
    for name in ("fifo", "dir", "sock", "zero"):
        assert refusal(fd, f"{name}.Boxfile") == "NotRegular"


def test_links_are_followed_inside_only(folder: tuple[Path, int]) -> None:
    path, fd = folder
    (path / "..1").mkdir()
    (path / "..1" / "web.Boxfile").write_bytes(LEAST)
    (path / "..data").symlink_to("..1")
    (path / "web.Boxfile").symlink_to("..data/web.Boxfile")
    assert read_below(fd, "web.Boxfile") == LEAST
    outside = path.parent / "desired-2"
    outside.mkdir()
    (outside / "x.Boxfile").write_bytes(LEAST)
    (path / "out.Boxfile").symlink_to("../desired-2/x.Boxfile")
    (path / "sub").symlink_to("../desired-2")
    (outside / "Boxfile").write_bytes(LEAST)
    (path / "abs.Boxfile").symlink_to(outside / "x.Boxfile")
    for relative in ("out.Boxfile", "abs.Boxfile", "sub/Boxfile"):
        assert refusal(fd, relative) == "OutsideFolder"
    with pytest.raises(NotRead):
        read_file(path / "sub" / "Boxfile")


def test_a_folder_reached_by_a_link_is_its_own(folder: tuple[Path, int]) -> None:
    path, _ = folder
    (path / "web.Boxfile").write_bytes(LEAST)
    link = path.parent / "link"
    link.symlink_to(path)
    assert read_file(link / "web.Boxfile") == LEAST


def test_size_is_bounded_before_and_while_reading(folder: tuple[Path, int]) -> None:
    path, fd = folder
    (path / "full.Boxfile").write_bytes(b"#" * MAX_BYTES)
    assert len(read_below(fd, "full.Boxfile")) == MAX_BYTES
    (path / "large.Boxfile").write_bytes(b"#" * (MAX_BYTES + 1))
    assert refusal(fd, "large.Boxfile") == "TooLarge"
    with (path / "huge.Boxfile").open("wb") as stream:
        stream.truncate(2 << 30)
    assert refusal(fd, "huge.Boxfile") == "TooLarge"
    # Files of /proc say that they have no bytes, and have more than we take.
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert refusal(proc, "kallsyms") == "TooLarge"
    finally:
        os.close(proc)


def test_a_file_that_is_being_written_is_not_believed(folder: tuple[Path, int]) -> None:
    path, fd = folder
    file = path / "web.Boxfile"
    file.write_bytes(LEAST)
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            file.write_bytes(LEAST * 4000)

    writer = threading.Thread(target=write)
    writer.start()
    caught = False
    try:
        for _ in range(20_000):
            try:
                read_below(fd, "web.Boxfile")
            except BeingWritten:
                caught = True
                break
    finally:
        done.set()
        writer.join()
    assert caught


def test_paths_count_from_the_boxfile() -> None:
    data = b"base: oci-archive:./x.tar\nnetwork: none\n"
    spec = declare(data, name="web", path=Path("/folder/web/Boxfile"))
    assert spec.base == "oci-archive:/folder/web/x.tar"


def test_bad_text_is_no_matter_of_this_box() -> None:
    with pytest.raises(InvalidBoxfile) as refused:
        declare(b"base: -x\n", name="web", path=Path("/folder/web.Boxfile"))
    assert not isinstance(refused.value, NotHere)


def test_the_host_is_asked_of_mounts_whatever_backend_is_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BOX_HOME", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    text = f"""\
base: alpine
backend: krun
mounts:
  - host: {tmp_path / "state"}
    guest: /a
  - host: /proc
    guest: /b
"""
    with pytest.raises(NotHere) as refused:
        declare(text.encode(), name="web", path=tmp_path / "desired" / "web.Boxfile")
    assert refused.value.reason == "MountRefused"
    assert [(each.line, each.path) for each in refused.value.problems] == [
        (4, "mounts[0].host"),
        (6, "mounts[1].host"),
    ]


@pytest.mark.parametrize("backend", ["firecracker", "krun", "podman"])
def test_a_backend_that_is_not_here_is_said_with_its_place(backend: str) -> None:
    data = LEAST + f"backend: {backend}\n".encode()
    with pytest.raises(NotHere) as refused:
        declare(data, name="web", path=Path("/folder/web.Boxfile"))
    assert refused.value.reason == "BackendUnavailable"
    (problem,) = refused.value.problems
    assert (problem.line, problem.column, problem.path) == (3, 10, "backend")
    assert "it has qemu" in problem.message
