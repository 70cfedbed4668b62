"""`logs`: which commands ran in a sandbox, and what its guest printed on its console."""

from __future__ import annotations

import base64
import contextlib
import os
import shlex
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from reconciler.boxfile.names import check_name
from reconciler.boxfile.problems import printable
from reconciler.engine import command_log, console_log, records
from reconciler.engine.home import open_home
from reconciler.errors import BoxError, Busy, Missing
from reconciler.linux.appending import Reader
from reconciler.surfaces.cli.options import Usage
from reconciler.surfaces.cli.terminal import tell
from reconciler.surfaces.render import Format

_FOLLOW_SECONDS = 0.2
# A guest that never ends a line is shown what it has said so far.
_LINE_LIMIT_BYTES = 1 << 16

# Turns the lines that are new, all that there are at first, into those that are shown.
Show = Callable[[list[bytes]], list[bytes]]


def logs(
    name: Annotated[str, typer.Argument(help="The sandbox: its Boxfile's name.")],
    output: Annotated[
        Format, typer.Option("--output", "-o", help="json: the log's lines as they are.")
    ] = "text",
    *,
    console: Annotated[
        bool, typer.Option("--console", help="What the guest printed on its console.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", min=0, help="Begin with the last N lines.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new ones, until interrupted.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="The console as it is, escape sequences and all.")
    ] = False,
) -> None:
    """Show the commands that run, exec, shell and cp ran in NAME, oldest first; or its console.

    Commands whose VM is gone are in it too. The console is read when this command is given and when
    the VM is stopped; of what a guest prints in between, the last 64 KiB. VMs of `box run` have no
    console that is kept. Each log is 2 MiB at most.
    """
    if (console and output == "json") or (raw and not console):
        raise Usage("-o json is for the commands, --raw for the console.", hint="box logs --help")
    home = open_home()
    if not (home / "sandboxes" / check_name(name)).is_dir():
        raise Missing(
            f"There is no sandbox {name}.",
            hint="`box ls` shows what is known; what is declared is known once it was started",
        )
    if console:
        show: Show = list if raw else _console_lines
        _print(console_log.path_of(home, name), show, tail, lambda: _drain(home, name), follow)
    else:
        show = _json_lines if output == "json" else _Commands(name)
        _print(Path(command_log.path_of(home, name)), show, tail, lambda: None, follow)


def _print(
    path: Path,
    show: Show,
    tail: int | None,
    refresh: Callable[[], None],
    follow: bool,  # noqa: FBT001
) -> None:
    most = tail
    with contextlib.closing(Reader(path)) as reader:
        for lines in _batches(reader, refresh, follow):
            shown = show(lines)
            for line in shown if most is None else deque(shown, most):
                sys.stdout.buffer.write(line + b"\n")
            sys.stdout.flush()
            most = None


def _batches(
    reader: Reader,
    refresh: Callable[[], None],
    follow: bool,  # noqa: FBT001
) -> Iterator[list[bytes]]:
    """All lines that there are, then with `follow` the new ones, again and again."""
    rest = b""
    while True:
        refresh()
        *lines, rest = (rest + b"".join(iter(reader.read, b""))).split(b"\n")
        if rest and (not follow or len(rest) > _LINE_LIMIT_BYTES):
            lines.append(rest)
            rest = b""
        yield lines
        if not follow:
            return
        time.sleep(_FOLLOW_SECONDS)


def _drain(home: Path, name: str) -> None:
    try:
        record = records.vm_record(home, name)
        if record is not None:
            console_log.drain(home, record)
    except Busy:
        return  # another command is reading it
    except (BoxError, OSError) as error:
        # One that is just ending has no socket any more, and no console.
        if not isinstance(error, FileNotFoundError | ConnectionError):
            tell(f"box: the console could not be read, what is shown is older: {error}")


def _console_lines(lines: list[bytes]) -> list[bytes]:
    return [_safe(line.rstrip(b"\r")) for line in lines]


def _safe(line: bytes) -> bytes:
    """The guest's text, with everything that a terminal would act on escaped, but tabs."""
    text = line.decode(errors="backslashreplace")
    return "\t".join(map(printable, text.split("\t"))).encode()


def _json_lines(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if command_log.parse(line) is not None]


class _Commands:
    """Command lines as text: one a command that has ended, or one that it started."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, lines: list[bytes]) -> list[bytes]:
        found = [value for line in lines if (value := command_log.parse(line)) is not None]
        ended = {value.get("id") for value in found if value["event"] == "end"}
        shown = (v for v in found if v["event"] == "end" or v.get("id") not in ended)
        return [self._line(value).encode() for value in shown]

    def _line(self, value: dict[str, Any]) -> str:
        verb = value.get("verb")
        where = f"{verb} in {value.get('vm')}" if value.get("vm") != self._name else verb
        parts = (value.get("time"), where, _ending(value), _command(value))
        return "  ".join(printable(str(part)) for part in parts)


def _ending(value: dict[str, Any]) -> str:
    if value["event"] == "start":
        return "started"
    if "error" in value:
        how = f"end unknown ({value['error']})"
    elif value.get("timed_out"):
        how = "took too long"
    else:
        how = str(value.get("signal") or f"exit {value.get('exit_code')}")
    return f"{how} after {value.get('duration_ms')} ms"


def _command(value: dict[str, Any]) -> str:
    argv = value.get("argv")
    words = [_word(each) for each in argv] if isinstance(argv, Sequence) else []
    return shlex.join(words) + (" ..." if value.get("cut") else "")


def _word(value: object) -> str:
    if isinstance(value, dict):
        return os.fsdecode(base64.b64decode(str(value.get("base64", ""))))
    return str(value)
