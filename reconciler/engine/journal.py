"""Events: JSON lines, each chained to the one before by its hash; never edited."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from reconciler.engine import chain_end
from reconciler.engine.chain_end import FIRST, End
from reconciler.linux import files, plain

_EVENTS = "events.jsonl"
_TAIL_BYTES = 65536
_LINE_BYTES = 1 << 20
"""Longest line that is read: far more than an event has."""
_LOCK_SECONDS = 10.0


def now() -> str:
    """This moment as RFC 3339 in UTC, to the millisecond."""
    moment = dt.datetime.now(dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def record(home: Path, sandbox: str, kind: str, reason: str, message: str, **data: Any) -> None:  # noqa: ANN401
    """Append one event: `kind` is Normal or Warning, `reason` one CamelCase word.

    Goes to the home's events and to the sandbox's own journal. Raises OSError on a full disk; what
    was there before stays whole.
    """
    event = {
        "time": now(),
        "sandbox": sandbox,
        "type": kind,
        "reason": reason,
        "message": message,
        **data,
    }
    _append(home / _EVENTS, event)
    directory = home / "sandboxes" / sandbox
    if directory.is_dir():
        _append(directory / "journal.jsonl", event)


def read_events(home: Path, sandbox: str | None = None) -> Iterator[dict[str, Any]]:
    """All events, oldest first; a torn last line (power cut) is passed over."""
    with contextlib.suppress(FileNotFoundError), _opened(home) as stream:
        for line in _lines(stream):
            event = _parse(line)
            if event is not None and sandbox in (None, event.get("sandbox")):
                yield event


@dataclass(frozen=True)
class Verified:
    """What the chain of events holds: `broken_line` (from 1) is the first that does not follow.

    `events` are the lines before it, all of them when there is none. `torn` says that a last line
    is not whole, which a power cut may do: it is cut off before the next one is written. `cut` says
    that lines are missing at the end, or that what tells the end is gone.
    """

    events: int
    broken_line: int | None = None
    torn: bool = False
    cut: bool = False

    @property
    def holds(self) -> bool:
        """Whether nothing was changed or taken away."""
        return self.broken_line is None and not self.cut


def verify(home: Path) -> Verified:
    """Follow the chain of all events from the first to its noted end. Raises OSError."""
    # First: who writes at the same time only makes the file longer than that.
    end = chain_end.read(home / _EVENTS)
    previous, count, size = FIRST, 0, 0
    torn, met = False, end == End()
    with contextlib.suppress(FileNotFoundError), _opened(home) as stream:
        for line in _lines(stream):
            torn = not line.endswith(b"\n") and len(line) < _LINE_BYTES
            if torn:
                break
            event = _parse(line)
            if event is None or event.get("previous") != previous:
                return Verified(count, broken_line=count + 1)
            previous = _digest(line.rstrip(b"\n"))
            count += 1
            before, size = size, size + len(line)
            if end and before < end.size <= size:
                if end != End(size, previous):
                    return Verified(count - 1, broken_line=count)
                met = True
    never_written = end is None and not count and not torn
    return Verified(count, torn=torn, cut=not met and not never_written)


def broken_at(home: Path) -> int | None:
    """The number (from 1) of the first line whose chain does not hold, None when all do."""
    return verify(home).broken_line


def _opened(home: Path) -> BinaryIO:
    return os.fdopen(plain.open_plain(home / _EVENTS), "rb")


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of `stream`. One that is too long is cut, and is the last one."""
    while line := stream.readline(_LINE_BYTES):
        yield line
        if len(line) == _LINE_BYTES:
            return


def _append(path: Path, event: dict[str, Any]) -> None:
    with files.locked(path.with_name(f".{path.name}.lock"), timeout_seconds=_LOCK_SECONDS):
        fd = plain.open_plain(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            size = os.fstat(fd).st_size
            if size == 0 and not chain_end.path_of(path).exists():
                chain_end.write(path, End())
            last, torn = _last_line(fd, size)
            if torn > _LINE_BYTES:
                raise plain.NotPlain(errno.EINVAL, "its end is no event", str(path))
            size -= torn
            previous = _previous(fd, End(size, _digest(last)), chain_end.read(path))
            line = json.dumps({**event, "previous": previous}, sort_keys=True).encode()
            try:
                # A line torn by a power cut is cut off, so that the chain goes on from a whole one.
                os.ftruncate(fd, size)
                files.write_all(fd, line + b"\n")
                os.fsync(fd)
            except OSError:
                os.ftruncate(fd, size)
                raise
            # On a full disk it stays behind, which the next one makes good.
            with contextlib.suppress(OSError):
                chain_end.write(path, End(size + len(line) + 1, _digest(line)))
        finally:
            os.close(fd)


def _previous(fd: int, have: End, noted: End | None) -> str:
    """What the next line says that it follows: never what somebody put there instead.

    More lines than were noted are in order: their writer was killed, or had no room to note them.
    """
    if noted is None:
        return have.digest
    at_end, torn = _last_line(fd, noted.size) if noted.size <= have.size else (b"", 0)
    if noted.size > have.size or torn or _digest(at_end) != noted.digest:
        return noted.digest
    return have.digest


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest() if line else FIRST


def _last_line(fd: int, size: int) -> tuple[bytes, int]:
    """The last whole line, and how many bytes of a torn one follow it."""
    tail = b""
    while True:
        start = max(0, size - len(tail) - _TAIL_BYTES)
        tail = os.pread(fd, size - len(tail) - start, start) + tail
        end = tail.rfind(b"\n")
        before = tail.rfind(b"\n", 0, max(end, 0))
        if before >= 0 or start == 0 or len(tail) > 2 * _LINE_BYTES:
            return tail[before + 1 : max(end, 0)], len(tail) - end - 1


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None
