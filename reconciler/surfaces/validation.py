"""Boxfiles checked for a person: files, whole folders as the controller sees them, and stdin."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from reconciler.boxfile.loader import read
from reconciler.boxfile.names import INNER_NAME, SUFFIX, InvalidName, check_name, name_of
from reconciler.boxfile.problems import InvalidBoxfile, Problem
from reconciler.boxfile.text import MAX_BYTES
from reconciler.controller.entry import Declared, Faulty
from reconciler.controller.folder import Entry, Folder
from reconciler.engine.declaration import (
    BeingWritten,
    NotHere,
    NotRead,
    declare,
    host_problems,
    read_file,
    unreadable,
    watched_folder,
)

_Seen = TypeVar("_Seen")

STDIN = "-"
_STDIN_SHOWN = "<stdin>"
_BOXFILES = f"NAME{SUFFIX} and NAME/{INNER_NAME}"
# What a good text can have that only this version or this host does not give.
_NOTES = frozenset({"BackendUnavailable"})
_SETTLING_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found at one path: `problems` are errors, `notes` are none.

    `file` is the path as given, `path` the true one of a file that box would look at by itself, and
    `name` its sandbox's. `is_text`: a Boxfile was read, which is good when there is no problem.
    """

    file: str
    name: str | None = None
    path: Path | None = None
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    is_text: bool = False

    @property
    def valid(self) -> bool:
        """Whether nothing must be mended."""
        return not self.problems


def check(paths: Sequence[str]) -> list[Checked]:
    """Check what is at each path, `-` for stdin; sorted by path, each file once."""
    found: dict[str | Path, Checked] = {}
    for path in paths:
        for each in _check(path):
            found.setdefault(each.path or each.file, each)
    return sorted(_with_conflicts(found.values()), key=lambda each: each.file)


def _check(path: str) -> Iterator[Checked]:
    if path == STDIN:
        yield _stdin()
    elif not path:
        yield _at('""', "is no path")
    else:
        try:
            is_folder = stat.S_ISDIR(Path(path).stat().st_mode)
        except FileNotFoundError:
            is_folder = False
        except OSError as error:
            yield _at(path, unreadable(error).brief)
            return
        except ValueError:
            yield _at(path, "is no path")  # a NUL in it
            return
        yield from _folder(Path(path)) if is_folder else (_file(Path(path)),)


def _stdin() -> Checked:
    empty = Checked(_STDIN_SHOWN)
    try:
        # One byte more than a Boxfile may have, so that the loader refuses it.
        loaded = read(sys.stdin.buffer.read(MAX_BYTES + 1), source=_STDIN_SHOWN)
    except OSError as error:
        return _refused(empty, unreadable(error))
    except InvalidBoxfile as error:
        return replace(empty, problems=error.problems)
    # Its mounts are judged as if it lay here.
    problems = host_problems(loaded, Path.cwd() / "stdin.Boxfile")
    return replace(empty, notes=loaded.notes, problems=tuple(problems), is_text=not problems)


def _folder(given: Path) -> Iterator[Checked]:
    folder = Folder(given)
    scan = _settled(folder.scan, lambda scan: not scan.unsettled)
    if scan.problem is not None:
        reason = scan.problem.removeprefix(f"{folder.path}: ")
        yield _at(str(given), f"not all of it could be read: {reason}")
    for entry in scan.entries:
        yield _entry(given / entry.path.relative_to(folder.path), entry)
    for name in scan.ignored:
        yield _noted(str(given / name), f"box does not read a file of this name: only {_BOXFILES}")
    if not scan.entries and scan.complete:
        yield _noted(str(given), "there is no Boxfile in this folder")


def _entry(path: Path, entry: Entry) -> Checked:
    found = Checked(str(path), entry.name, entry.path)
    match entry.state:
        case Declared():
            return replace(found, is_text=True)
        case Faulty(reason="InvalidName"):
            # The controller looks no further, but there may be more to mend.
            return _file(path)
        case Faulty(reason=reason, problems=problems) if reason in _NOTES:
            return replace(found, notes=_relabelled(problems, found.file), is_text=True)
        case Faulty(message=message, problems=problems):
            return _faulty(found, problems or [_placed(found.file, message)])
        case _:
            return _refused(found, BeingWritten())


def _file(given: Path) -> Checked:
    """Check a file that was named, whatever it is called."""
    path = Path(os.path.realpath(given.parent), given.name)
    found = _named(str(given), path)
    try:
        data = _settled(lambda: _bytes_at(path), lambda data: data is not None)
        if data is None:
            raise BeingWritten
        declare(data, name=found.name or path.name, path=path)
    except OSError as error:
        return _refused(found, unreadable(error))
    except NotRead as error:
        return _refused(found, error)
    except NotHere as error:
        if error.reason in _NOTES:
            notes = (*found.notes, *_relabelled(error.problems, found.file))
            return replace(found, notes=notes, is_text=True)
        return _faulty(found, error.problems)
    except InvalidBoxfile as error:
        return _faulty(found, error.problems)
    return replace(found, is_text=True)


def _bytes_at(path: Path) -> bytes | None:
    try:
        return read_file(path)
    except BeingWritten:
        return None


def _named(label: str, path: Path) -> Checked:
    """The name of the file at `path`, or what is to be said about it."""
    inner = path.name == INNER_NAME
    name = name_of(f"{path.parent.name}/{INNER_NAME}" if inner else path.name)
    if name is None:
        return _noted(label, f"box does not read a file of this name: only {_BOXFILES}")
    found = Checked(label, name, path)
    try:
        check_name(name)
    except InvalidName as error:
        return replace(found, problems=(_placed(label, str(error)),))
    return found


def _settled(look: Callable[[], _Seen], is_settled: Callable[[_Seen], bool]) -> _Seen:
    """What is seen when nothing is in the middle of being written, or after a bounded wait."""
    deadline = time.monotonic() + _SETTLING_SECONDS
    while not is_settled(seen := look()) and time.monotonic() < deadline:
        time.sleep(_LOOK_AGAIN_SECONDS)
    return seen


def _with_conflicts(found: Iterable[Checked]) -> Iterator[Checked]:
    """Say it where two files of one folder have one name: box would take neither."""
    named: dict[tuple[Path, str | None], list[Checked]] = {}
    for each in found:
        if each.path is None:
            yield each
        else:
            named.setdefault((watched_folder(each.path), each.name), []).append(each)
    for (_, name), files in named.items():
        for each in files:
            others = (other.file for other in files if other is not each)
            said = (f"has the name {name} too, as {file}; remove one of them" for file in others)
            yield _faulty(each, [_placed(each.file, message) for message in said])


def _faulty(found: Checked, problems: Iterable[Problem]) -> Checked:
    """The same with problems of a text, under the path that the user gave."""
    said = _relabelled(problems, found.file)
    return replace(found, problems=(*found.problems, *said))


def _refused(found: Checked, error: NotRead) -> Checked:
    return _faulty(found, [_placed(found.file, error.brief)])


def _at(file: str, message: str) -> Checked:
    return Checked(file, problems=(_placed(file, message),))


def _noted(file: str, message: str) -> Checked:
    return Checked(file, notes=(_placed(file, message),))


def _placed(file: str, message: str) -> Problem:
    """A problem of the file as a whole, on one line."""
    lines = (line.strip().removesuffix(".") for line in message.splitlines())
    return Problem(file, 1, 1, "", ". ".join(lines))


def _relabelled(problems: Iterable[Problem], file: str) -> tuple[Problem, ...]:
    return tuple(replace(problem, file=file) for problem in problems)
