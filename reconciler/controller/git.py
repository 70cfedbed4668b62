"""Whether git is in the middle of changing the folder: then a missing file proves nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

STALE_SECONDS = 60.0
"""How old a sign of an operation is before it is called left behind."""

_MARKERS = (
    "index.lock",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "rebase-merge",
    "rebase-apply",
)
_LONGEST_GITDIR_BYTES = 8192


@dataclass(frozen=True, slots=True)
class GitOperation:
    """The sign that git is at work: the path of the marker, and for how long it lies there."""

    marker: Path
    age_seconds: float

    @property
    def stale(self) -> bool:
        """Whether nobody is at work any more, or somebody stopped half way."""
        return self.age_seconds > STALE_SECONDS


def operation_in(folder: Path) -> GitOperation | None:
    """The operation under way in the work tree that holds `folder`; only looks, runs no git."""
    directory = _git_directory(folder)
    if directory is None:
        return None
    for marker in _MARKERS:
        path = directory / marker
        try:
            modified = path.lstat().st_mtime
        except OSError:
            continue
        return GitOperation(path, max(0.0, time.time() - modified))
    return None


def _git_directory(folder: Path) -> Path | None:
    for parent in (folder, *folder.parents):
        dot_git = parent / ".git"
        try:
            if dot_git.is_dir():
                return dot_git
            if dot_git.is_file():
                return _linked(parent, dot_git)
        except OSError:
            return None
    return None


def _linked(parent: Path, dot_git: Path) -> Path | None:
    """Follow the `gitdir:` line of a linked work tree or submodule (gitrepository-layout(5))."""
    try:
        with dot_git.open("rb") as stream:
            text = stream.read(_LONGEST_GITDIR_BYTES)
    except OSError:
        return None
    if not text.startswith(b"gitdir: "):
        return None
    target = text.removeprefix(b"gitdir: ").rstrip(b"\n").decode("utf-8", "surrogateescape")
    return None if "\0" in target else parent / target
