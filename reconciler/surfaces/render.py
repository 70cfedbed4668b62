"""How results look on a terminal and as JSON. Decides nothing: shows what it is given."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reconciler.boxfile.problems import Problem, printable

Format = Literal["text", "json"]

_WORDS = {True: "yes", False: "no", None: "-"}
_PIPE_COLUMNS = 200


class _Console(Console):
    """rich would exit with status 1, which is an answer of some commands."""

    def on_broken_pipe(self) -> NoReturn:
        """Say that the reader has gone; the entry point knows the exit status of that."""
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """A console on one of the streams as they are now; wide where nobody's terminal folds it."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PIPE_COLUMNS
    return _Console(file=stream, highlight=False, width=width)


def as_json(value: object) -> None:
    """Print one JSON document: sorted keys, text as UTF-8 only where it is printable ASCII."""
    sys.stdout.write(json.dumps(value, indent=2, sort_keys=True) + "\n")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. Cells may hold a user's text: neither markup nor escapes in it are obeyed."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(*(cell(each) for each in row))
    console().print(drawn)


def cell(value: object) -> str:
    """One value for a table's cell."""
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    lines = str(value).splitlines() or [""]
    return escape("\n".join(printable(line) for line in lines))


def rows(values: Sequence[Mapping[str, Any]], output: Format) -> None:
    """Print objects of one shape: a table with their keys as columns, or a JSON list."""
    if output == "json":
        as_json(list(values))
    elif values:
        table([key.upper() for key in values[0]], (list(each.values()) for each in values))


def problem_json(problem: Problem) -> dict[str, Any]:
    """A Boxfile's problem as JSON says it."""
    return {
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": problem.message,
    }


def inspection(value: Mapping[str, Any], output: Format) -> None:
    """Print what confines a sandbox: its fields, then one line a fact."""
    if output == "json":
        as_json(value)
        return
    apart = {"facts", "spec", "waiting", "lost"}
    about = {key: each for key, each in value.items() if key not in apart}
    if lost := value.get("lost"):
        about["lost"] = f"{', '.join(lost)}: the record is broken or gone, so nothing was read"
    table(("", ""), ((key, _shown(each)) for key, each in about.items()))
    facts = value.get("facts") or []
    if facts:
        sys.stdout.write("\n")
        shown = ([fact["verdict"], fact["promise"], fact["have"]] for fact in facts)
        table(("VERDICT", "PROMISE", "FOUND"), shown)
    rows(value.get("waiting") or [], output)


def _shown(value: object) -> object:
    """A field of fields as lines of a name and a value."""
    if not isinstance(value, Mapping):
        return value
    return "\n".join(f"{key}: {_within(each)}" for key, each in value.items())


def _within(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    return " ".join(str(value).splitlines())
