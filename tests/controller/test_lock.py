from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.controller.folder import Folder, FolderIdentity
from reconciler.controller.lock import (
    FolderMemory,
    TwoControllers,
    confirmation_waits,
    controller_of,
    folder_lock,
    leave_confirmation,
    recall,
    remember,
    take_confirmation,
)

HOLD = """
import sys
from pathlib import Path
from reconciler.controller.folder import Folder
from reconciler.controller.lock import folder_lock
identity = Folder(Path(sys.argv[2])).identity()
with folder_lock(Path(sys.argv[1]), identity):
    print("held", flush=True)
    sys.stdin.read()
"""


def identity_of(folder: Path) -> FolderIdentity:
    identity = Folder(folder).identity()
    assert identity is not None
    return identity


class TestTwoControllers:
    """E4: one controller a folder, by whatever path."""

    def test_the_second_is_told_who_holds_it(self, box_home: Path, folder: Path) -> None:
        link = folder.with_name("link")
        link.symlink_to(folder)
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, box_home, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"held\n"
            refused = pytest.raises(TwoControllers, match=f"PID {other.pid}")
            with refused, folder_lock(box_home, identity_of(link)):
                pass
            assert controller_of(box_home, identity_of(folder)) == other.pid
            other.kill()
        # The kernel lets go of it with its holder.
        with folder_lock(box_home, identity_of(folder)):
            pass
        assert controller_of(box_home, identity_of(folder)) is None

    def test_another_folder_is_free(self, box_home: Path, folder: Path) -> None:
        other = folder.with_name("other")
        other.mkdir()
        with folder_lock(box_home, identity_of(folder)), folder_lock(box_home, identity_of(other)):
            pass

    def test_nothing_is_left_in_the_folder(self, box_home: Path, folder: Path) -> None:
        with folder_lock(box_home, identity_of(folder)):
            assert list(folder.iterdir()) == []


def test_memory_outlives_the_controller(box_home: Path, folder: Path) -> None:
    assert recall(box_home, folder) == FolderMemory(str(folder))
    memory = FolderMemory(
        str(folder), FolderIdentity(1, 2), frozenset({"a", "b"}), frozenset({"c"})
    )
    remember(box_home, memory)
    assert recall(box_home, folder) == memory


def test_a_broken_memory_is_none(box_home: Path, folder: Path) -> None:
    remember(box_home, FolderMemory(str(folder), FolderIdentity(1, 2)))
    for path in (box_home / "folders").glob("*.json"):
        path.write_text('{"device": "x"}')
    assert recall(box_home, folder).identity is None


def test_a_confirmation_is_taken_once(box_home: Path, folder: Path) -> None:
    assert not confirmation_waits(box_home, folder)
    leave_confirmation(box_home, folder, "abc")
    assert confirmation_waits(box_home, folder)
    assert take_confirmation(box_home, folder) == "abc"
    assert take_confirmation(box_home, folder) is None
