from __future__ import annotations

import fcntl
import itertools
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.linux.appending import OLDER, Reader, append, append_line

MOST = 1 << 20

# Waits for a byte, so that all begin at once; then appends lines of its own.
WRITER = """
import sys
from pathlib import Path
from reconciler.linux.appending import append_line
path, name, lines, size, most = Path(sys.argv[1]), *map(int, sys.argv[2:])
sys.stdin.buffer.read(1)
for number in range(lines):
    append_line(path, f"{name} {number} ".encode().ljust(size, b"x"), most)
"""


def lines_of(path: Path) -> list[bytes]:
    reader = Reader(path)
    try:
        return b"".join(iter(reader.read, b"")).splitlines()
    finally:
        reader.close()


def write_at_once(path: Path, writers: int, lines: int, size: int, most: int) -> None:
    gate, opened = os.pipe()
    words = [str(each) for each in (lines, size, most)]
    children = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(name), *words], stdin=gate)
        for name in range(writers)
    ]
    os.close(gate)
    os.write(opened, b"x" * writers)
    os.close(opened)
    assert [child.wait(60) for child in children] == [0] * writers


@pytest.mark.slow
def test_64_writers_at_once_lose_no_line_and_mix_none(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_at_once(path, writers=64, lines=8, size=3800, most=MOST + (MOST >> 1))
    # About 1.9 MiB: it was full once on the way.
    assert path.with_name(f"log{OLDER}").exists()
    found = [line for line in lines_of(path) if line]
    assert len(found) == len(set(found)) == 64 * 8
    assert all(len(line) == 3800 for line in found)
    wanted = {f"{name} {number}" for name, number in itertools.product(range(64), range(8))}
    assert {b" ".join(line.split()[:2]).decode() for line in found} == wanted


def test_it_is_private_and_two_files_at_most_of_about_the_size(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for number in range(1000):
        append_line(path, b"%06d" % number, 100)
        assert path.stat().st_size <= 100
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log", f"log{OLDER}"]
    found = lines_of(path)
    assert found == [b"%06d" % number for number in range(1000 - len(found), 1000)]
    assert len(found) > 14


def test_what_is_larger_than_a_file_may_be_is_alone_in_one(tmp_path: Path) -> None:
    append(tmp_path / "log", b"a", 4)
    append(tmp_path / "log", b"b" * 9, 4)
    assert (tmp_path / "log").read_bytes() == b"b" * 9


@pytest.mark.parametrize("size", range(8))
def test_a_line_torn_at_any_byte_costs_no_other_one(tmp_path: Path, size: int) -> None:
    path = tmp_path / "log"
    append_line(path, b"before", 100)
    with path.open("ab") as log:
        log.write(b'{"torn"}'[:size])
    append_line(path, b"after", 100)
    found = lines_of(path)
    assert (found[0], found[-1]) == (b"before", b"after")
    assert len(found) == (3 if size else 2)


def test_a_killed_writer_costs_only_its_own_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for round_ in range(5):
        words = [sys.executable, "-c", WRITER, str(path), str(round_), "1000000", "3800", str(MOST)]
        child = subprocess.Popen(words, stdin=subprocess.PIPE)
        assert child.stdin is not None
        child.stdin.write(b"x")
        child.stdin.flush()
        while not path.exists() or f"{round_} " not in path.read_text(errors="replace"):
            assert child.poll() is None
        child.kill()
        child.wait()
        child.stdin.close()
        append_line(path, b"mine", MOST)
        assert lines_of(path)[-1] == b"mine"
        assert sum(len(line) != 3800 for line in lines_of(path)) <= 2 * (round_ + 1)


def test_who_was_stopped_while_making_room_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append_line(path, b"x" * 90, 100)
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        append_line(path, b"y" * 70, 100)
        with pytest.raises(BlockingIOError):
            append_line(path, b"z" * 10, 100)
    append_line(path, b"z" * 10, 100)
    assert lines_of(path) == [b"x" * 90, b"y" * 70, b"z" * 10]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"kept")
    (tmp_path / "log").symlink_to("other")
    with pytest.raises(OSError, match="not a regular file"):
        append(tmp_path / "log", b"x", 100)
    assert (tmp_path / "other").read_bytes() == b"kept"


def test_a_full_disk_is_an_error_and_the_next_line_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append_line(path, b"before", MOST)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
        append_line(path, b"cut short", MOST)
        with pytest.raises(OSError, match="too large"):
            append_line(path, b"nothing", MOST)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    append_line(path, b"after", MOST)
    assert lines_of(path) == [b"before", b"cut", b"after"]


def test_a_reader_goes_on_over_rotations(tmp_path: Path) -> None:
    path = tmp_path / "log"
    reader = Reader(path)
    assert reader.read() == b""
    read = b""
    for number in range(100):
        append_line(path, b"%06d" % number, 50)
        # Sometimes late: a line in the older file, another in the new one.
        if number % 5 == 0:
            read += b"".join(iter(reader.read, b""))
    read += b"".join(iter(reader.read, b""))
    path.unlink()
    assert reader.read() == b""
    append_line(path, b"again", 50)
    read += b"".join(iter(reader.read, b""))
    reader.close()
    assert read.splitlines() == [*(b"%06d" % number for number in range(100)), b"again"]
