"""Events: JSON lines in chains of a bounded size, one of the home and one of each sandbox."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reconciler.engine import chain, chain_check, chain_end, chain_files
from reconciler.engine.chain import Limits
from reconciler.engine.chain_check import Verified
from reconciler.engine.chain_reader import Reader

_JOURNAL = "journal.jsonl"
_OF_HOME = Limits(file_bytes=8 << 20, older=4)
_OF_SANDBOX = Limits(file_bytes=1 << 20, older=2)


def now() -> str:
    """This moment as RFC 3339 in UTC, to the millisecond."""
    moment = dt.datetime.now(dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def path_of(home: Path) -> Path:
    """The file that the events of a home are written to."""
    return home / "events.jsonl"


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
    chain.append(path_of(home), event, _OF_HOME)
    directory = home / "sandboxes" / sandbox
    # What is said of a folder is of no sandbox.
    if sandbox and directory.is_dir():
        chain.append(directory / _JOURNAL, event, _OF_SANDBOX)


def reader(home: Path) -> Reader:
    """What reads the events of a home, and goes on when there are more."""
    return Reader(path_of(home))


def read_events(home: Path, sandbox: str | None = None) -> Iterator[dict[str, Any]]:
    """All events that are kept, oldest first; a torn last line (power cut) is passed over."""
    with reader(home) as events:
        for event in events.new():
            if sandbox in (None, event.get("sandbox")):
                yield event


def verify(home: Path) -> Verified:
    """Follow the chain of all events from the first kept one to its noted end. Raises OSError."""
    return chain_check.verify(path_of(home))


def verify_journals(home: Path) -> dict[Path, Verified]:
    """The same for the journal of each sandbox that has, or had, one. Raises OSError."""
    found = {}
    for directory in sorted((home / "sandboxes").iterdir()):
        path = directory / _JOURNAL
        if directory.is_dir() and _was_written(path):
            found[path] = chain_check.verify(path)
    return found


def _was_written(path: Path) -> bool:
    there = path.exists() or chain_end.path_of(path).exists()
    return there or bool(chain_files.older_numbers(path))


def broken_at(home: Path) -> int | None:
    """The number (from 1) of the first line whose chain does not hold, None when all do."""
    return verify(home).broken_line
