"""Which commands ran in a sandbox: a JSON line when each starts, and one when it has ended.

The first is there before the guest is asked, so whatever ran is in the log, also when box was
killed over it. Both lines tell all of the command, since the first may have been rotated away.
Never in it: the environment, input and output.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from reconciler.engine import commands
from reconciler.errors import BoxError
from reconciler.linux import appending, quick_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.engine.contact import Contact
    from reconciler.guest.protocol import Exec, Exit

    StrPath = str | os.PathLike[str]

    Text = str | dict[str, str]

MOST_BYTES = 1 << 20
"""Size of the log at which it becomes the older file; the one before that goes."""

LINE_BYTES = 4096
# Characters of JSON, so that all of them and what else there is stay below LINE_BYTES.
_ARGV = 2600
_CWD = 400
_USER = 100
_ERROR = 200
# Of an object of one value, all but the value.
_AROUND = len('{"": }')
# What a word takes at least.
_LEAST = 20


def path_of(home: StrPath, sandbox: str) -> str:
    """Where the log of a sandbox is."""
    return f"{os.fspath(home)}/sandboxes/{sandbox}/commands.jsonl"


class Entry:
    """One command that is under way; what is known of its end."""

    def __init__(self, home: StrPath, vm: Contact, verb: str, request: Exec) -> None:
        self._path = path_of(home, vm.sandbox)
        self._start = time.monotonic()
        argv, all_words = _words(request.argv)
        user, all_user = _text(request.user, _USER)
        cwd, all_cwd = _text(request.cwd, _CWD)
        self._about = {
            "id": os.urandom(8).hex(),
            "vm": vm.vm,
            "incarnation": vm.incarnation,
            "verb": verb,
            "argv": argv,
            "argc": len(request.argv),
            "user": user,
            "cwd": cwd,
            "cut": not (all_words and all_user and all_cwd),
        }
        self._end: dict[str, Any] = {"exit_code": None, "signal": None, "timed_out": False}

    def ended(
        self, end: Exit, stdout_bytes: int | None = None, stderr_bytes: int | None = None
    ) -> None:
        """Tell how the command ended, and how much it wrote where that is known."""
        self._end = {
            "exit_code": commands.exit_code(end),
            "signal": commands.signal_name(end),
            "timed_out": end.timed_out,
            "stdout_bytes": stdout_bytes,
            "stderr_bytes": stderr_bytes,
        }

    def failed(self, error: BaseException) -> None:
        """Tell why the command's end is not known."""
        known = error.brief if isinstance(error, BoxError) else type(error).__name__
        self._end["error"] = _text(known, _ERROR)[0]

    def write_start(self) -> None:
        """Write the first line."""
        self._write("start", {})

    def write_end(self) -> None:
        """Write the second line."""
        duration_ms = round((time.monotonic() - self._start) * 1000)
        self._write("end", {**self._end, "duration_ms": duration_ms})

    def _write(self, event: str, more: dict[str, Any]) -> None:
        value = {"time": _now(), "event": event, **self._about, **more}
        # Of a full disk, or a sandbox that was taken away, the command knows nothing.
        with contextlib.suppress(OSError):
            appending.append_line(self._path, quick_json.dumps(value).encode(), MOST_BYTES)


@contextlib.contextmanager
def noted(home: StrPath, vm: Contact, verb: str, request: Exec) -> Iterator[Entry]:
    """Write the command to the log of its sandbox, around what carries it out.

    `verb` is how box was asked: "exec", "run", ... A log that cannot be written stops no command.
    """
    entry = Entry(home, vm, verb, request)
    entry.write_start()
    try:
        yield entry
    except BaseException as error:
        entry.failed(error)
        raise
    finally:
        entry.write_end()


def parse(line: bytes) -> dict[str, Any] | None:
    """One line of the log; None for one that is torn."""
    try:
        value = quick_json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and "event" in value else None


def _now() -> str:
    """RFC 3339 in UTC, to the millisecond; datetime costs the start of a command 4 ms."""
    seconds, milliseconds = divmod(time.time_ns() // 1_000_000, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03}Z"


def _words(argv: Sequence[str]) -> tuple[list[Text], bool]:
    """The words that there is room for, the last one cut; and whether none is missing."""
    words: list[Text] = []
    room = _ARGV
    for word in argv:
        if room < _LEAST:
            return words, False
        text, whole = _text(word, room)
        words.append(text)
        if not whole:
            return words, False
        room -= _size(text) + 2
    return words, True


def _text(word: str, most: int) -> tuple[Text, bool]:
    """A word in at most `most` characters of JSON, and whether it is whole.

    One that is not UTF-8 is {"base64": ...}: JSON has no words for other bytes.
    """
    data = os.fsencode(word)
    try:
        text = kept = data.decode()
    except UnicodeDecodeError:
        import binascii

        some = data[: (most - _LEAST) * 3 // 4]
        return {"base64": binascii.b2a_base64(some, newline=False).decode()}, some == data
    if len(kept) > most - 2:
        kept = kept[: most - 2]
    while _size(kept) > most:
        kept = kept[: len(kept) // 2]
    return kept, kept == text


def _size(text: Text) -> int:
    return len(quick_json.dumps({"": text})) - _AROUND
