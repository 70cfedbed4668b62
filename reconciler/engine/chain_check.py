"""Following a chain of events from where it begins to its noted end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reconciler.engine import chain_end, chain_files
from reconciler.engine.chain_end import End, Start
from reconciler.engine.chain_files import Opened


@dataclass(frozen=True)
class Verified:
    """What a chain of events holds: `broken_line` (from 1) is the first that does not follow.

    It is in the older file with the number `older`, or in the one that is written to. `events` are
    the lines before it, all of them when there is none. `torn` says that a last line is not whole,
    which a power cut may do: it is cut off before the next one is written. `cut` says that lines
    are missing at the end, or that what tells the end is gone; `gone` is the older file that should
    be there and is not. None of this is `dropped`: so many older events, before the one of the time
    `since`, were taken away by box to keep the chain bounded.
    """

    events: int
    broken_line: int | None = None
    torn: bool = False
    cut: bool = False
    older: int | None = None
    gone: int | None = None
    dropped: int = 0
    since: str | None = None

    @property
    def holds(self) -> bool:
        """Whether nothing was changed or taken away by others."""
        return self.broken_line is None and self.gone is None and not self.cut


def verify(path: Path) -> Verified:
    """Follow the chain at `path` from the first line that is kept. Raises OSError."""
    end, found = _follow(path)
    if end is None and chain_end.read(path) is not None:
        # The first line was written meanwhile, and its end noted.
        _, found = _follow(path)
    return found


def _follow(path: Path) -> tuple[End | None, Verified]:
    end, files = chain_files.noted_and_opened(path)
    try:
        return end, _Walk(path, end).through(files)
    finally:
        chain_files.close(files)


class _Walk:
    """How far the chain holds: `size` bytes and `events` lines, `previous` being the last."""

    def __init__(self, path: Path, end: End | None) -> None:
        self._noted = end
        self._start = end.start if end else chain_files.start_without_note(path)
        self._met = end is not None and end.at_start
        self._previous = self._start.digest
        self._size = self._start.size
        self._events = 0
        self._torn = False
        self._since: str | None = None

    def through(self, files: list[Opened]) -> Verified:
        """Follow all lines of the files."""
        expected = self._start.file
        for each in files:
            if each.number is not None and each.number != expected:
                return self._found(gone=expected)
            expected += 1
            broken = self._broken_line(each)
            if broken is not None:
                return self._found(broken_line=broken, older=each.number)
        untouched = Start()
        never_written = (self._noted, self._start, self._events) == (None, untouched, 0)
        return self._found(cut=not self._met and (self._torn or not never_written))

    def _found(self, **more: Any) -> Verified:  # noqa: ANN401 - of Verified
        dropped = self._start.events
        found = Verified(self._events, torn=self._torn, dropped=dropped, **more)
        return replace(found, since=self._since) if self._start != Start() else found

    def _broken_line(self, file: Opened) -> int | None:
        """The number of the first line that does not follow from the one before."""
        for number, line in enumerate(chain_files.lines(file.stream), 1):
            whole = line.endswith(b"\n")
            self._torn = file.number is None and not whole and len(line) < chain_files.LINE_BYTES
            if self._torn:
                return None
            event = chain_files.parse(line)
            if not whole or event is None or event.get("previous") != self._previous:
                return number
            self._previous = chain_files.digest(line.rstrip(b"\n"))
            before, self._size = self._size, self._size + len(line)
            if self._noted and before < self._noted.size <= self._size:
                if (self._noted.size, self._noted.digest) != (self._size, self._previous):
                    return number
                self._met = True
            self._events += 1
            self._since = self._since or str(event.get("time"))
        return None
