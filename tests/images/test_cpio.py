from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.images.cpio import archive, character_device, directory, regular
from reconciler.linux.process import find_program, run

ENTRIES = [
    directory("dev"),
    character_device("dev/console", 5, 1, 0o600),
    regular("init", b"#!x", 0o755),
    regular("a/odd", b"12345", 0o444),
    regular("empty", b"", 0o600),
]


def test_the_same_entries_give_the_same_bytes() -> None:
    assert archive(ENTRIES) == archive(list(ENTRIES))
    assert archive(ENTRIES) != archive(ENTRIES[1:])


def test_every_header_and_every_file_begins_on_four_bytes() -> None:
    data = archive(ENTRIES)
    assert len(data) % 4 == 0
    positions = [n for n in range(len(data)) if data.startswith(b"070701", n)]
    assert len(positions) == len(ENTRIES) + 1
    assert all(position % 4 == 0 for position in positions)


@pytest.mark.skipif(find_program("cpio") is None, reason="needs the cpio program")
def test_cpio_reads_it() -> None:
    done = run(["cpio", "-itv", "--quiet"], stdin=archive(ENTRIES), timeout_seconds=30)
    lines = [line.split() for line in done.stdout.decode().splitlines()]
    assert [(line[0], line[-1]) for line in lines] == [
        ("drwxr-xr-x", "dev"),
        ("crw-------", "dev/console"),
        ("-rwxr-xr-x", "init"),
        ("-r--r--r--", "a/odd"),
        ("-rw-------", "empty"),
    ]


@pytest.mark.skipif(find_program("cpio") is None, reason="needs the cpio program")
def test_contents_survive(tmp_path: Path) -> None:
    run(
        ["cpio", "-id", "--quiet", "a/odd"], stdin=archive(ENTRIES), cwd=tmp_path, timeout_seconds=9
    )
    assert (tmp_path / "a/odd").read_bytes() == b"12345"
