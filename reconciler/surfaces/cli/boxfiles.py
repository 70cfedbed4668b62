"""`validate`, `new`, `explain` and `schema`: Boxfiles before anything is made of them."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from reconciler.boxfile import reference
from reconciler.boxfile.bases import parse_base
from reconciler.boxfile.loader import load
from reconciler.boxfile.names import check_name
from reconciler.boxfile.problems import MOST_PROBLEMS, Problem, printable
from reconciler.boxfile.schema import schema_text
from reconciler.boxfile.template import template
from reconciler.surfaces import creation, render, validation
from reconciler.surfaces.cli.options import Usage
from reconciler.surfaces.cli.terminal import say, tell
from reconciler.surfaces.declared import default_folder
from reconciler.surfaces.examples import example, examples
from reconciler.surfaces.explained import entry_json, entry_lines
from reconciler.surfaces.render import Format
from reconciler.surfaces.validation import Checked

Output = Annotated[Format, typer.Option("--output", "-o", help="How to print: text or json.")]
Paths = Annotated[
    list[str],
    typer.Argument(metavar="PATH", help="Boxfiles, folders of them, or - for stdin."),
]
NewName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME", help="The new sandbox's name: a-z, 0-9 and -.", show_default=False
    ),
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="EXAMPLE", help="Begin with this example; see --list."),
]
Directory = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="Where to write it; BOX_DESIRED, else ./desired."),
]
List = Annotated[bool, typer.Option("--list", help="List the examples; write nothing.")]
Field = Annotated[
    str | None,
    typer.Argument(metavar="FIELD", help="Like ram_mib, mounts.host or blueprint.users."),
]


_EXAMPLES = {
    "validate": "In a hook of git: box validate sandboxes/ || exit 1",
    "new": "Example: box new web --from tiny-python, then: box run web -- python3",
    "explain": "Example: box explain network",
    "schema": "Example: box schema >boxfile.schema.json",
}


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    for command in (validate, new, explain, schema):
        app.command(help=_help(command), epilog=_EXAMPLES[command.__name__])(command)


def _help(command: Callable[..., object]) -> str:
    """The docstring with a line a paragraph: typer folds only the first one itself."""
    paragraphs = (inspect.getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def validate(paths: Paths, output: Output = "text") -> int:
    """Check Boxfiles without touching anything: every error of every file, with its place.

    An error is FILE:LINE:COLUMN: FIELD: what is wrong, and what is allowed; it goes to stderr. A
    folder is read as a controller would read it. What is marked `note` is no error.

    Exit status: 0 when all are good, 1 when something must be mended.
    """
    checked = validation.check(paths)
    valid = all(each.valid for each in checked)
    if output == "json":
        render.as_json({"valid": valid, "files": [_checked_json(each) for each in checked]})
    else:
        for each in checked:
            _show_checked(each)
    return 0 if valid else 1


def _checked_json(checked: Checked) -> dict[str, Any]:
    return {
        "file": checked.file,
        "name": checked.name,
        "valid": checked.valid,
        "problems": [render.problem_json(problem) for problem in checked.problems],
        "more_problems": len(checked.problems) >= MOST_PROBLEMS,
        "notes": [render.problem_json(note) for note in checked.notes],
    }


def _show_checked(checked: Checked) -> None:
    for problem in checked.problems:
        tell(str(problem))
    if len(checked.problems) >= MOST_PROBLEMS:
        tell(f"{printable(checked.file)}: there may be more; these are the first")
    for note in checked.notes:
        tell(_note(note))
    if checked.is_text and checked.valid:
        say(f"{printable(checked.file)}: good")


def _note(note: Problem) -> str:
    place = f"{printable(note.file)}:{note.line}:{note.column}"
    field = f"{printable(note.path)}: " if note.path else ""
    return f"{place}: note: {field}{note.message}"


def new(
    name: NewName = None,
    *,
    begin_with: From = None,
    directory: Directory = None,
    list_examples: List = False,
    output: Output = "text",
) -> int:
    """Write NAME.Boxfile to begin with: explained, ready to run, never in place of another.

    Without --from it is a busybox that needs no download, with every common field in a comment.
    Beside it comes a hidden JSON schema, by which editors complete and check the file.
    """
    if list_examples:
        _list_examples(output)
        return 0
    if name is None:
        raise Usage("Which name?", hint="box new NAME, see `box new --help`")
    check_name(name)
    chosen = example(begin_with) if begin_with is not None else None
    begin = chosen.written_for if chosen else template
    text = begin(name, creation.SCHEMA_NAME)
    folder = (directory or default_folder()).absolute()
    was_there = folder.is_dir()
    path = creation.new_boxfile(folder, name, text, schema_text(), make_folder=directory is None)
    following = _what_next(name, path, text)
    if output == "json":
        made = {"name": name, "file": str(path), "example": begin_with, "next": following}
        render.as_json(made)
        return 0
    if not was_there:
        tell(f"made the folder {_shown(folder)}")
    say(_shown(path))
    for line in following:
        tell(f"  {line}")
    return 0


def _list_examples(output: Format) -> None:
    known = examples()
    if output == "json":
        render.as_json([{"name": each.name, "summary": each.summary} for each in known])
    else:
        render.table(("EXAMPLE", ""), ((each.name, each.summary) for each in known))


def _what_next(name: str, path: Path, text: str) -> list[str]:
    base = load(text.encode(), source=str(path)).base
    lines = [f"box validate {shlex.quote(_shown(path))}"]
    if parse_base(base).kind == "image":
        lines.append(f"podman pull {base}")
    set_folder = f"BOX_DESIRED={shlex.quote(_shown(path.parent))} "
    box = "box" if path.parent == default_folder() else f"{set_folder}box"
    return [*lines, f"{box} run {name} -- uname -a", f"{box} up {name}"]


def _shown(path: Path) -> str:
    """The path from here, where it is below."""
    here = Path.cwd()
    return printable(str(path.relative_to(here) if path.is_relative_to(here) else path))


def explain(field: Field = None, output: Output = "text") -> int:
    """Tell about a field of the Boxfile: its meaning, what it may be, what a change of it does.

    Without FIELD: all fields with their defaults.
    """
    if field is None:
        entries = reference.entries()
        if output == "json":
            render.as_json([entry_json(each) for each in entries])
        else:
            rows = ((each.path, each.default_words, each.summary) for each in entries)
            render.table(("FIELD", "DEFAULT", "MEANING"), rows)
        return 0
    entry = reference.find(field)
    if output == "json":
        render.as_json(entry_json(entry))
    else:
        for line in entry_lines(entry):
            say(line)
    return 0


def schema() -> None:
    """Print the JSON Schema (draft 2020-12) of the Boxfile, for editors and other programs.

    The same is in schemas/boxfile.schema.json, and beside every file that `box new` writes.
    """
    sys.stdout.write(schema_text())
