"""Reading a chain of events from its oldest file on, and going on while it grows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Self

from reconciler.engine import chain_end, chain_files
from reconciler.engine.chain_files import Opened


class Reader:
    """The events of a chain in their order, each once, however many files it goes through."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at: BinaryIO | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._at is not None:
            self._at.close()

    def new(self) -> Iterator[dict[str, Any]]:
        """What came since the last call; a line that is not whole yet comes with a later one."""
        # Those behind ours first: when there are any, nobody writes to ours any more.
        behind = self._behind()
        try:
            while True:
                if self._at is not None:
                    yield from _events(self._at)
                if not behind:
                    return
                if self._at is not None:
                    self._at.close()
                self._at = behind.pop(0).stream
        finally:
            chain_files.close(behind)

    def _behind(self) -> list[Opened]:
        """The files behind the one that is being read; all when none is, or it was dropped."""
        if self._at is not None and self._is_written():
            return []
        end = chain_end.read(self._path)
        found = chain_files.opened(self._path, end.start.file if end else 1)
        if self._at is None:
            return found
        ours = os.fstat(self._at.fileno())
        for position, each in enumerate(found):
            if os.path.samestat(ours, os.fstat(each.stream.fileno())):
                chain_files.close(found[: position + 1])
                return found[position + 1 :]
        return found

    def _is_written(self) -> bool:
        """Whether the file that is being read is the one that is written to."""
        if self._at is None:
            return False
        try:
            return os.path.samestat(self._path.lstat(), os.fstat(self._at.fileno()))
        except FileNotFoundError:
            return False


def _events(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    at = stream.tell()
    if at > os.fstat(stream.fileno()).st_size:
        # A line that could not be written whole was taken back.
        stream.seek(0, os.SEEK_END)
    for line in chain_files.lines(stream):
        if not line.endswith(b"\n"):
            stream.seek(-len(line), os.SEEK_CUR)
            return
        event = chain_files.parse(line)
        if event is not None:
            yield event
