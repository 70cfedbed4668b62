"""Reading one file: the second line of defence, behind what the scan has seen of it before."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.controller.entry import Declared, Faulty, FileState, Unsettled, read_entry
from tests.controller.sleepers import GOOD, put, until


@pytest.fixture
def directory(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def read(directory: int, path: Path) -> FileState:
    return read_entry(directory, path.name, "web", path)


def test_a_good_file(directory: int, folder: Path) -> None:
    assert isinstance(read(directory, put(folder / "web.Boxfile")), Declared)


def test_a_fifo_put_there_since_it_was_looked_at(directory: int, folder: Path) -> None:
    path = folder / "web.Boxfile"
    os.mkfifo(path)
    # Were it opened as a file is, this would wait for a writer for ever.
    state = read(directory, path)
    assert isinstance(state, Faulty)
    assert state.reason == "NotRegular"


def test_a_file_gone_since_then(directory: int, folder: Path) -> None:
    state = read(directory, folder / "web.Boxfile")
    assert isinstance(state, Faulty)
    assert state.reason == "Unreadable"


@pytest.mark.slow
def test_a_file_that_changes_while_it_is_read(directory: int, folder: Path) -> None:
    path = put(folder / "web.Boxfile", GOOD + "#" * 100_000)
    stop = threading.Event()

    def write() -> None:
        with path.open("r+b", buffering=0) as file:
            while not stop.is_set():
                file.seek(0)
                file.write(GOOD.encode())

    writer = threading.Thread(target=write)
    writer.start()
    try:
        until(lambda: isinstance(read(directory, path), Unsettled))
    finally:
        stop.set()
        writer.join()
