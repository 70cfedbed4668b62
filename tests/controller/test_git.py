from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from reconciler.controller.git import operation_in


@pytest.fixture
def tree(folder: Path) -> Path:
    subprocess.run(["git", "init", "-q", folder.parent], check=True)
    return folder


def test_nothing_is_under_way(tree: Path) -> None:
    assert operation_in(tree) is None


def test_outside_of_a_work_tree(folder: Path) -> None:
    assert operation_in(folder) is None


@pytest.mark.parametrize("marker", ["index.lock", "MERGE_HEAD", "rebase-merge"])
def test_each_marker_counts(tree: Path, marker: str) -> None:
    path = tree.parent / ".git" / marker
    path.write_text("")
    found = operation_in(tree)
    assert found is not None
    assert found.marker == path
    assert not found.stale


def test_an_old_marker_is_stale(tree: Path) -> None:
    path = tree.parent / ".git" / "index.lock"
    path.write_text("")
    os.utime(path, (time.time() - 120,) * 2)
    found = operation_in(tree)
    assert found is not None
    assert found.stale


def test_a_linked_work_tree_has_its_own_lock(tree: Path, tmp_path: Path) -> None:
    git = ["git", "-C", str(tree.parent), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    linked = tmp_path / "linked"
    subprocess.run([*git, "worktree", "add", "-q", str(linked)], check=True, capture_output=True)
    assert operation_in(linked) is None
    (tree.parent / ".git" / "worktrees" / "linked" / "index.lock").write_text("")
    assert operation_in(linked) is not None
    assert operation_in(tree) is None


@pytest.mark.parametrize("text", [b"", b"gitdir: \0", b"gitdir: /nowhere\n", b"\xff"])
def test_a_strange_git_file_is_no_operation(folder: Path, text: bytes) -> None:
    (folder / ".git").write_bytes(text)
    assert operation_in(folder) is None
