"""A chain of JSON lines, each with the hash of the one before, in a bounded number of files.

A file that has no room left becomes an older one by a single rename. Before that the oldest go:
first it is noted where what stays begins, and what it follows, so that whoever is killed in between
leaves a chain that holds, and at most one file that the next one takes away.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reconciler.engine import chain_end, chain_files
from reconciler.engine.chain_end import End, Start
from reconciler.linux import files, plain

_LOCK_SECONDS = 10.0
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND
_PIECE_BYTES = 1 << 20
# Of a line that would be too long: characters of its message, and of JSON of each other value.
_MESSAGE = 1 << 16
_VALUE = 4096


@dataclass(frozen=True)
class Limits:
    """A chain has `older` files (1 or more) of at most `file_bytes`, and the one written to."""

    file_bytes: int
    older: int


@dataclass(frozen=True)
class _Tip:
    """Where the next line goes: behind `size` bytes of the file, before which are `base` others.

    `previous` is what the line follows; `start` is where what is kept begins.
    """

    base: int
    size: int
    previous: str
    start: Start

    @property
    def end(self) -> End:
        return End(self.base + self.size, self.previous, self.start)


def append(path: Path, event: dict[str, Any], limits: Limits) -> None:
    """Append one event. Raises OSError on a full disk; what was there before stays whole."""
    with files.locked(path.with_name(f".{path.name}.lock"), timeout_seconds=_LOCK_SECONDS):
        with _opened(path) as fd:
            tip = _tip(path, fd)
            line = _line(event, tip.previous)
            full = tip.size > 0 and tip.size + len(line) > limits.file_bytes
            if not full:
                _write(path, fd, tip, line)
                return
            os.ftruncate(fd, tip.size)
        tip = _make_older(path, tip, limits)
        with _opened(path) as fd:
            _write(path, fd, tip, line)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    fd = plain.open_plain(path, _APPEND)
    try:
        yield fd
    finally:
        os.close(fd)


def _tip(path: Path, fd: int) -> _Tip:
    size = os.fstat(fd).st_size
    older = chain_files.older_numbers(path)
    if size == 0 and not older and not chain_end.path_of(path).exists():
        chain_end.write(path, End())
    noted = chain_end.read(path)
    start = noted.start if noted else chain_files.start_without_note(path)
    kept = [number for number in older if number >= start.file]
    base = start.size + sum(chain_files.older_path(path, each).lstat().st_size for each in kept)
    last, torn = chain_files.last_line(fd, size)
    if torn > chain_files.LINE_BYTES:
        raise plain.NotPlain(errno.EINVAL, "its end is no event", str(path))
    size -= torn
    before = _last_digest(chain_files.older_path(path, kept[-1])) if kept else start.digest
    have = chain_files.digest(last) if last else before
    if noted is not None and not _is_there(fd, size, noted, base, before):
        have = noted.digest
    return _Tip(base, size, have, start)


def _is_there(fd: int, size: int, noted: End, base: int, before: str) -> bool:
    """Whether the line that was noted as the last one is where it was.

    If not, the next line goes on from it all the same: never from what somebody put there instead.
    More lines than were noted are in order: their writer was killed, or had no room to note them.
    """
    within = noted.size - base
    if not 0 <= within <= size:
        return False
    if within == 0:
        return before == noted.digest
    last, torn = chain_files.last_line(fd, within)
    return not torn and chain_files.digest(last) == noted.digest


def _last_digest(path: Path) -> str:
    fd = plain.open_plain(path)
    try:
        return chain_files.digest(chain_files.last_line(fd, os.fstat(fd).st_size)[0])
    finally:
        os.close(fd)


def _line(event: dict[str, Any], previous: str) -> bytes:
    line = json.dumps({**event, "previous": previous}, sort_keys=True).encode() + b"\n"
    if len(line) < chain_files.LINE_BYTES:
        return line
    short = {key: each for key, each in event.items() if len(json.dumps(each)) <= _VALUE}
    short |= {"message": str(event.get("message"))[:_MESSAGE], "cut": True, "previous": previous}
    return json.dumps(short, sort_keys=True).encode() + b"\n"


def _write(path: Path, fd: int, tip: _Tip, line: bytes) -> None:
    try:
        # A line torn by a power cut is cut off, so that the chain goes on from a whole one.
        os.ftruncate(fd, tip.size)
        files.write_all(fd, line)
        os.fsync(fd)
    except OSError:
        os.ftruncate(fd, tip.size)
        raise
    digest = chain_files.digest(line.rstrip(b"\n"))
    after = replace(tip, size=tip.size + len(line), previous=digest)
    # On a full disk it stays behind, which the next one makes good.
    with contextlib.suppress(OSError):
        chain_end.write(path, after.end)


def _make_older(path: Path, tip: _Tip, limits: Limits) -> _Tip:
    """Make the file an older one, and drop the oldest; where the first line of a new one goes."""
    older = chain_files.older_numbers(path)
    start = tip.start
    kept = [number for number in older if number >= start.file]
    for number in kept[: max(0, len(kept) + 1 - limits.older)]:
        start = _start_behind(path, number, start)
    after = replace(tip, start=start)
    chain_end.write(path, after.end, durable=True)
    for number in older:
        if number < start.file:
            chain_files.older_path(path, number).unlink(missing_ok=True)
    number = max([*older, start.file - 1]) + 1
    path.rename(chain_files.older_path(path, number))
    files.sync_directory(path.parent)
    return replace(after, base=tip.base + tip.size, size=0)


def _start_behind(path: Path, number: int, start: Start) -> Start:
    """Where what is kept begins without the older file `number`."""
    file = chain_files.older_path(path, number)
    fd = plain.open_plain(file)
    try:
        events = 0
        while piece := os.read(fd, _PIECE_BYTES):
            events += piece.count(b"\n")
    finally:
        os.close(fd)
    size = start.size + file.lstat().st_size
    return Start(number + 1, size, _last_digest(file), start.events + events)
