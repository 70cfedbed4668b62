"""The files of a chain: the one that is written to, and numbered older ones, 1 being the first."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from reconciler.engine import chain_end
from reconciler.engine.chain_end import FIRST, End, Start
from reconciler.linux import plain

LINE_BYTES = 1 << 20
"""Longest line that is read: far more than an event has."""

_TAIL_BYTES = 65536
_TRIES = 10


@dataclass(frozen=True)
class Opened:
    """One file of a chain; `number` is None for the one that is written to."""

    number: int | None
    stream: BinaryIO


def older_path(path: Path, number: int) -> Path:
    """Where an older file of the chain at `path` is: events.7.jsonl."""
    return path.with_name(f"{path.stem}.{number}{path.suffix}")


def older_numbers(path: Path) -> list[int]:
    """The numbers of the older files that are there, sorted. Raises OSError."""
    name = re.compile(rf"{re.escape(path.stem)}\.([1-9][0-9]{{0,8}}){re.escape(path.suffix)}")
    found = [name.fullmatch(each.name) for each in path.parent.iterdir()]
    return sorted(int(each[1]) for each in found if each)


def opened(path: Path, first: int) -> list[Opened]:
    """What there is of the chain, oldest first, without older files before `first`.

    The caller closes them. Needs no lock: the one that is written to is opened first, so nothing
    is missing in between if it becomes an older one meanwhile. Raises OSError.
    """
    found: list[Opened] = []
    try:
        with contextlib.suppress(FileNotFoundError):
            found.append(Opened(None, _stream(path)))
        now = os.fstat(found[0].stream.fileno()) if found else None
        at = 0
        for number in older_numbers(path):
            if number < first:
                continue
            # One that is dropped meanwhile was the oldest.
            with contextlib.suppress(FileNotFoundError):
                found.insert(at, Opened(number, _stream(older_path(path, number))))
                if now and os.path.samestat(now, os.fstat(found[at].stream.fileno())):
                    found.pop(at).stream.close()
                    break
                at += 1
    except BaseException:
        close(found)
        raise
    return found


def noted_and_opened(path: Path) -> tuple[End | None, list[Opened]]:
    """The noted end, and all files from the noted start on, none dropped in between."""
    found: list[Opened] = []
    # The end first: who writes at the same time only makes the chain longer than that.
    end = chain_end.read(path)
    for _ in range(_TRIES):
        close(found)
        found = opened(path, end.start.file if end else 1)
        after = chain_end.read(path)
        if (after and after.start) == (end and end.start):
            break
        end = after
    return end, found


def close(files: list[Opened]) -> None:
    """Close them all."""
    for each in files:
        each.stream.close()


def lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of `stream`. One that is too long is cut, and is the last one."""
    while line := stream.readline(LINE_BYTES):
        yield line
        if len(line) == LINE_BYTES:
            return


def parse(line: bytes) -> dict[str, Any] | None:
    """The event in a line; None when there is none."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def digest(line: bytes) -> str:
    """The SHA-256 of a line without its end, which the next one holds; `FIRST` of none."""
    return hashlib.sha256(line).hexdigest() if line else FIRST


def last_line(fd: int, size: int) -> tuple[bytes, int]:
    """The last whole line of the first `size` bytes, and how many of a torn one follow it."""
    tail = b""
    while True:
        start = max(0, size - len(tail) - _TAIL_BYTES)
        tail = os.pread(fd, size - len(tail) - start, start) + tail
        end = tail.rfind(b"\n")
        before = tail.rfind(b"\n", 0, max(end, 0))
        if before >= 0 or start == 0 or len(tail) > 2 * LINE_BYTES:
            return tail[before + 1 : max(end, 0)], len(tail) - end - 1


def start_without_note(path: Path) -> Start:
    """Where a chain seems to begin whose note is gone: with what the oldest file says."""
    numbers = older_numbers(path)
    if not numbers or numbers[0] == 1:
        return Start()
    with _stream(older_path(path, numbers[0])) as stream:
        event = parse(stream.readline(LINE_BYTES)) or {}
    return Start(file=numbers[0], digest=str(event.get("previous", FIRST)))


def _stream(path: Path) -> BinaryIO:
    return os.fdopen(plain.open_plain(path), "rb")
