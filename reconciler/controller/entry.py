"""One Boxfile of a watched folder, read without being held up or fooled by what lies there."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.boxfile.loader import Loaded, read
from reconciler.boxfile.names import InvalidName, check_name
from reconciler.boxfile.problems import InvalidBoxfile, Problem
from reconciler.engine.declaration import (
    BeingWritten,
    NotHere,
    NotRead,
    check_regular,
    judged,
    read_below,
    unreadable,
)
from reconciler.engine.spec import Spec

SETTLE_SECONDS = 0.08
"""How long a file must not have changed before its text is believed."""

_CLOCK_GRAIN_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Declared:
    """A good Boxfile."""

    spec: Spec
    loaded: Loaded | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unsettled:
    """It is being written: look again in a moment."""


@dataclass(frozen=True, slots=True)
class Faulty:
    """It is there and says nothing: `reason` is one CamelCase word, `problems` have places."""

    reason: str
    message: str
    problems: tuple[Problem, ...] = ()
    loaded: Loaded | None = field(default=None, compare=False, repr=False)


FileState = Declared | Unsettled | Faulty


def look_at(directory: int, relative: str) -> os.stat_result | Faulty:
    """What `relative` below the open `directory` is, links followed; a fault if no regular file.

    Asked before opening: opening a device can already do something.
    """
    try:
        found = os.stat(relative, dir_fd=directory)
        check_regular(found.st_mode)
    except OSError as error:
        return fault(unreadable(error))
    except NotRead as error:
        return fault(error)
    return found


def settled(found: os.stat_result, now: float) -> bool:
    """Whether the file rests since SETTLE_SECONDS; `now` is time.time().

    The inode's change time is the kernel's own and cannot be set. A server whose clock differs
    from ours gives times that say nothing, and counts as settled.
    """
    age = now - found.st_ctime_ns / 1e9
    return not -_CLOCK_GRAIN_SECONDS <= age < SETTLE_SECONDS


def read_entry(directory: int, relative: str, name: str, path: Path) -> FileState:
    """Read and parse one Boxfile, which is at `path` too. Raises nothing, whatever is there."""
    try:
        check_name(name)
    except InvalidName as error:
        return Faulty("InvalidName", str(error))
    try:
        loaded = read(read_below(directory, relative), source=str(path))
        return judge(loaded, name, path)
    except BeingWritten:
        return Unsettled()
    except NotRead as error:
        return fault(error)
    except OSError as error:
        return fault(unreadable(error))
    except InvalidBoxfile as error:
        empty = error.problems[0].message.startswith("is empty")
        reason = "EmptySpec" if empty else "InvalidSpec"
        return Faulty(reason, str(error.problems[0]), error.problems)


def judge(loaded: Loaded, name: str, path: Path) -> FileState:
    """The state of a good Boxfile on this host as it is now: mounts' sources come and go."""
    kept = loaded if loaded.boxfile.mounts else None
    try:
        return Declared(judged(loaded, name=name, path=path), kept)
    except NotHere as error:
        return Faulty(error.reason, str(error.problems[0]), error.problems, kept)


def fault(error: NotRead) -> Faulty:
    """What is said of a file that was not read."""
    return Faulty(error.reason, error.brief)
