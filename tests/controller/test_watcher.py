"""Wake-ups, and what watchfiles does not survive."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.controller.folder import Folder
from reconciler.controller.watcher import Watcher
from tests.controller.sleepers import put, until


class Woken:
    def __init__(self) -> None:
        self.event = threading.Event()
        self.watcher = Watcher(self.event.set)

    def watch(self, folder: Path, *subfolders: Path) -> None:
        self.event.clear()
        self.watcher.watch(folder, subfolders, Folder(folder).identity())
        assert self.event.wait(10), "the watch never came up"
        self.event.clear()


@pytest.fixture
def woken() -> Iterator[Woken]:
    woken = Woken()
    yield woken
    woken.watcher.stop()


def test_a_change_wakes(woken: Woken, folder: Path) -> None:
    woken.watch(folder)
    put(folder / "web.Boxfile")
    assert woken.event.wait(60)


def test_a_change_in_a_subfolder_wakes(woken: Woken, folder: Path) -> None:
    put(folder / "web" / "Boxfile")
    woken.watch(folder, folder / "web")
    put(folder / "web" / "Boxfile", "x")
    assert woken.event.wait(60)


def test_git_at_work_does_not(woken: Woken, folder: Path) -> None:
    """A5"""
    (folder / ".git").mkdir()
    woken.watch(folder)
    for _ in range(5):
        put(folder / ".git" / "index.lock").rename(folder / ".git" / "index")
    assert not woken.event.wait(0.5)


def test_a_name_that_is_not_utf8_kills_the_watch_and_is_told(woken: Woken, folder: Path) -> None:
    """A12"""
    woken.watch(folder)
    (folder / os.fsdecode(b"\xff")).touch()
    until(lambda: "decode" in str(woken.watcher.degraded), "degradation")
    assert woken.event.wait(60)


def test_a_folder_that_is_not_there(woken: Woken, folder: Path) -> None:
    woken.watcher.watch(folder / "none", (), None)
    assert "not there" in str(woken.watcher.degraded)


def test_another_folder_at_the_path_is_watched_anew(woken: Woken, folder: Path) -> None:
    """A7"""
    woken.watch(folder)
    folder.rename(folder.with_name("old"))
    folder.mkdir()
    woken.watch(folder)
    put(folder / "web.Boxfile")
    assert woken.event.wait(60)
