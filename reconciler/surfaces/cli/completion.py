"""`completion`: scripts for shells, made from the commands as they are.

Names of sandboxes are looked up by the script itself, in the folders that hold them: starting box
at each press of a key would be felt.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from reconciler.boxfile.model import Boxfile
from reconciler.surfaces.cli.terminal import say

_TEMPLATES = Path(__file__).parent / "completions"
_KINDS = {
    "name": "sandbox",
    "command": "command",
    "source": "copy",
    "target": "copy",
    "directory": "folder",
    "folder": "folder",
    "paths": "file",
    "field": "field",
    "shell": "shell",
}
# A name that there is already is the one thing it cannot have.
_NEW_NAME = ("new", "name")
_ROWS = {
    "fish": "            case {verb}\n                set options {options}\n"
    "                set valued {valued}\n                set kinds {kinds}",
    "sh": "    {verb}) options='{options}' valued='{valued}' kinds='{kinds}' ;;",
}


class Row(NamedTuple):
    """A command: its options, those of them that take a value, what its arguments are."""

    verb: str
    options: list[str]
    valued: list[str]
    kinds: list[str]


def register(app: typer.Typer) -> None:
    """Add the command to the app."""

    @app.command()
    def completion(
        shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Your shell.")],
    ) -> None:
        """Print a script that completes commands, options and names of sandboxes.

        bash: `source <(box completion bash)` in ~/.bashrc; zsh: `source <(box completion zsh)` in
        ~/.zshrc, behind compinit; fish: `box completion fish >~/.config/fish/completions/box.fish`.
        """
        say(script(shell, list(rows(app))).rstrip("\n"))


def rows(app: typer.Typer) -> Iterator[Row]:
    """The app's commands, those that are hidden left out."""
    group: Any = typer.main.get_command(app)
    for verb, command in group.commands.items():
        if command.hidden:
            continue
        options = [each for each in command.params if each.param_type_name == "option"]
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        yield Row(
            verb,
            [word for each in options for word in each.opts] + ["--help"],
            [word for each in options if _takes_a_word(each) for word in each.opts],
            [_kind(verb, each) for each in arguments],
        )


def _takes_a_word(option: Any) -> bool:  # noqa: ANN401 - as below
    """Whether its value is the next word; one that may be left out stands behind a `=`."""
    return not option.is_flag and not (option.metavar or "").startswith("[=")


def _kind(verb: str, argument: Any) -> str:  # noqa: ANN401 - typer's own copy of click has no types
    if (verb, argument.name) == _NEW_NAME:
        return "none"
    kind = _KINDS[argument.name]
    return f"{kind}*" if argument.nargs < 0 and kind != "command" else kind


def script(shell: str, table: list[Row]) -> str:
    """The completion script for a shell."""
    row = _ROWS.get(shell, _ROWS["sh"])
    lines = [
        row.format(
            verb=each.verb,
            options=" ".join(each.options),
            valued=" ".join(each.valued),
            kinds=" ".join(each.kinds).replace("*", "\\*" if shell == "fish" else "*"),
        )
        for each in table
    ]
    text = (_TEMPLATES / shell).read_text()
    text = text.replace("@TABLE@", "\n".join(lines))
    text = text.replace("@VERBS@", " ".join(each.verb for each in table))
    return text.replace("@FIELDS@", " ".join(Boxfile.model_fields))
