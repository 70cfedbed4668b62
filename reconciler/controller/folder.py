"""A scan of the watched folder: every Boxfile in it, and whether the whole folder was seen."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from reconciler.boxfile.names import INNER_NAME, SUFFIX, name_of
from reconciler.boxfile.problems import printable
from reconciler.controller.entry import (
    Declared,
    Faulty,
    FileState,
    Unsettled,
    fault,
    judge,
    look_at,
    read_entry,
    settled,
)
from reconciler.engine.declaration import NotRead, unreadable
from reconciler.engine.stamp import Stamp, stamp_of
from reconciler.engine.trust import UNTRUSTED, Groups, check_file, check_folder
from reconciler.errors import Refused

# Of what lies around a file, not of the file.
_OTHER_FAULTS = frozenset({"OutsideFolder", "Unreadable"})
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FolderIdentity:
    """Which directory it is, whatever its path: stat(2)'s device and inode."""

    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One Boxfile: `stamp` is None when there was nothing to take it from."""

    name: str
    path: Path
    state: FileState
    stamp: Stamp | None = None

    @property
    def untrusted(self) -> bool:
        """Whether others can change it."""
        return isinstance(self.state, Faulty) and self.state.reason == UNTRUSTED


@dataclass(frozen=True, slots=True)
class Scan:
    """All Boxfiles of a folder at one moment, sorted by name and path.

    `identity` is None when there is no folder. `problem` says why not all of it was seen, `reason`
    the same in a word. `ignored` are files that look like Boxfiles but are none; `subfolders` the
    folders worth watching; `unsure` those without a Boxfile from which others may have taken it.
    """

    path: Path
    identity: FolderIdentity | None
    entries: tuple[Entry, ...] = ()
    ignored: tuple[str, ...] = ()
    subfolders: tuple[Path, ...] = ()
    unsure: tuple[Entry, ...] = ()
    problem: str | None = None
    reason: str = "SourceMissing"

    @property
    def complete(self) -> bool:
        """Whether a name that is not here is absent."""
        return self.problem is None

    @property
    def unsettled(self) -> bool:
        """Whether some file is being written."""
        return any(isinstance(entry.state, Unsettled) for entry in self.entries)

    @property
    def names(self) -> frozenset[str]:
        """The names that have a file, good or bad."""
        return frozenset(entry.name for entry in self.entries)


class Folder:
    """A folder given by its path, resolved once. Remembers only what unchanged files parsed to."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path))
        self._named = path if path.is_absolute() else Path.cwd() / path
        self._parsed: dict[str, tuple[Stamp, FileState]] = {}

    def identity(self) -> FolderIdentity | None:
        """Which directory is at the path now; None when there is none or we may not look."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        is_directory = stat.S_ISDIR(found.st_mode)
        return FolderIdentity(found.st_dev, found.st_ino) if is_directory else None

    def changed_ns(self) -> int | None:
        """When something was last made, renamed or removed in it; None when we may not look."""
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return None

    def scan(self) -> Scan:
        """Look at everything in the folder. Raises nothing: what fails is told in the result."""
        try:
            directory = os.open(self.path, _OPEN_DIRECTORY)
        except OSError as error:
            return Scan(self.path, None, problem=f"{self.path}: {error.strerror}")
        try:
            found = os.fstat(directory)
            scan = Scan(self.path, FolderIdentity(found.st_dev, found.st_ino))
            return self._scan(directory, scan)
        finally:
            os.close(directory)

    def check(self, groups: Groups | None = None) -> None:
        """See that no other user can change what is in it. Raises Refused, OSError."""
        groups = Groups() if groups is None else groups
        for path in {self._named, self.path}:
            check_folder(path, groups)

    def _scan(self, directory: int, scan: Scan) -> Scan:
        groups = Groups()
        try:
            self.check(groups)
        except Refused as error:
            problem = f"{self.path}: {error.brief} {error.details}; {error.hint}"
            return replace(scan, problem=problem, reason="SourceUntrusted")
        except OSError as error:
            return replace(scan, problem=f"{self.path}: {error.strerror}")
        try:
            with os.scandir(directory) as listing:
                found = sorted((each.name, _is_directory(each)) for each in listing)
        except OSError as error:
            return replace(scan, problem=f"{self.path}: {error.strerror}")
        relatives, subfolders = _candidates(directory, found)
        entries = tuple(self._entry(directory, relative, groups) for relative in relatives)
        self._forget_all_but(relatives)
        return replace(
            scan,
            entries=tuple(sorted(entries, key=lambda entry: (entry.name, str(entry.path)))),
            ignored=tuple(printable(name) for name, _ in found if _looks_like_one(name)),
            subfolders=tuple(self.path / name for name in subfolders),
            unsure=tuple(self._unsure(set(subfolders), relatives, groups)),
        )

    def _unsure(
        self, subfolders: set[str], relatives: list[str], groups: Groups
    ) -> Iterator[Entry]:
        for name in sorted(subfolders - {each.partition("/")[0] for each in relatives}):
            fault = self._fault(name, groups)
            if fault is not None:
                yield Entry(printable(name), self.path / name / INNER_NAME, fault)

    def _fault(self, relative: str, groups: Groups) -> Faulty | None:
        """Why what lies there is not to be trusted."""
        try:
            check_file(self.path, relative, groups)
        except NotRead as error:
            return fault(error)
        except Refused as error:
            return Faulty(UNTRUSTED, error.brief)
        except OSError as error:
            return fault(unreadable(error))
        return None

    def _entry(self, directory: int, relative: str, groups: Groups) -> Entry:
        name = name_of(relative) or ""
        path = self.path / relative
        found = look_at(directory, relative)
        if isinstance(found, Faulty):
            return Entry(printable(name), path, found)
        # Each time: the directory that it is in is not in its stamp.
        untrusted = self._fault(relative, groups)
        if untrusted is not None:
            return Entry(printable(name), path, untrusted)
        stamp = stamp_of(found)
        known = self._parsed.get(relative)
        if known is not None and known[0] == stamp:
            return Entry(printable(name), path, _as_of_now(known[1], name, path), stamp)
        if not settled(found, time.time()):
            return Entry(printable(name), path, Unsettled(), stamp)
        state = read_entry(directory, relative, name, path)
        if not isinstance(state, Unsettled) and not _depends_on_more(state):
            self._parsed[relative] = (stamp, state)
        return Entry(printable(name), path, state, stamp)

    def _forget_all_but(self, relatives: list[str]) -> None:
        for gone in self._parsed.keys() - set(relatives):
            del self._parsed[gone]


def _candidates(directory: int, found: list[tuple[str, bool]]) -> tuple[list[str], list[str]]:
    """The relative paths that are Boxfiles, and the folders that have or may get one."""
    relatives = []
    subfolders = []
    for name, is_directory in found:
        inner = f"{name}/{INNER_NAME}"
        if name_of(name) is not None:
            relatives.append(name)
        elif is_directory and name_of(inner) is not None:
            there = _lexists(directory, inner)
            if there is not False:
                relatives.append(inner)
            if there is not None:
                subfolders.append(name)
    return relatives, subfolders


def _is_directory(each: os.DirEntry[str]) -> bool:
    try:
        return each.is_dir()
    except OSError:
        return False


def _lexists(directory: int, relative: str) -> bool | None:
    """Whether there is such an entry; None when that cannot be told."""
    try:
        os.stat(relative, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return None
    return True


def _as_of_now(state: FileState, name: str, path: Path) -> FileState:
    """The state of an unchanged file: not parsed again, but its mounts are looked at again."""
    if isinstance(state, Declared | Faulty) and state.loaded is not None:
        return judge(state.loaded, name, path)
    return state


def _depends_on_more(state: FileState) -> bool:
    """Whether it may change without the file: folders deny, links move."""
    return isinstance(state, Faulty) and state.reason in _OTHER_FAULTS


def _looks_like_one(name: str) -> bool:
    hidden = name.startswith(".") or name.endswith("~")
    is_one = name.endswith(SUFFIX)
    return INNER_NAME.casefold() in name.casefold() and not hidden and not is_one
