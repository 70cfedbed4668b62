"""What a command line asks of a command in a VM: its values, checked before anything starts."""

from __future__ import annotations

import math
import os

from reconciler.boxfile.names import check_name
from reconciler.engine import commands
from reconciler.engine.contact import Contact
from reconciler.guest import protocol
from reconciler.surfaces.cli.options import Parsed, Usage

COMMAND_OPTIONS = {"--env": True, "-e": True, "--workdir": True, "-w": True, "--user": True,
                   "-u": True, "--timeout": True, "-i": False, "--interactive": False}  # fmt: skip
TERMINAL_OPTIONS = {"-t": False, "--tty": False}
OUTPUT_OPTIONS = {"-o": True, "--output": True}


def checked(parsed: Parsed, verb: str) -> Parsed:
    """See that the command line can be carried out, before a VM is started for it."""
    check_name(parsed.name)
    if not parsed.command:
        raise Usage("Which command?", hint=f"box {verb} {parsed.name} -- COMMAND")
    if wants_json(parsed) and _asks_terminal(parsed):
        raise Usage("-o json keeps what the command writes, and -t shows it: one of the two.")
    if _asks_terminal(parsed) and not os.isatty(0):
        hint = "leave -t out, or run it from a terminal"
        raise Usage("-t needs a terminal, and standard input is none.", hint=hint)
    return checked_values(parsed)


def checked_values(parsed: Parsed) -> Parsed:
    """See that the options have values that mean something."""
    _given_environment(parsed)
    timeout_ms(parsed)
    return parsed


def only_name(parsed: Parsed, hint: str | None = None) -> str:
    """The sandbox's name, of a command that takes nothing else."""
    check_name(parsed.name)
    if parsed.command:
        raise Usage("This command takes only the sandbox's name.", hint=hint)
    return parsed.name


def request(vm: Contact, parsed: Parsed) -> protocol.Exec:
    """The request that the command line makes of `vm`; without a command, of its login shell."""
    shell = not parsed.command
    return commands.request(
        vm,
        parsed.command or ["shell"],
        env={**_terminal_environment(parsed), **_given_environment(parsed)},
        cwd=either(parsed, "--workdir", "-w") or _own_directory(vm, shell),
        user=user(parsed),
        timeout_ms=timeout_ms(parsed),
        kind=protocol.LOGIN if shell else protocol.PROGRAM,
    )


def _own_directory(vm: Contact, shell: bool) -> str | None:  # noqa: FBT001
    """Where commands of this image start; a shell at home, if the image names no place."""
    return "" if shell and vm.working_dir == "/" else None


def wants_terminal(parsed: Parsed) -> bool:
    """Whether the command gets a terminal: with -t, and a shell where we are in one."""
    return os.isatty(0) if not parsed.command else _asks_terminal(parsed)


def wants_json(parsed: Parsed) -> bool:
    """Whether the command's end is to be one JSON object. Raises Usage for another format."""
    output = either(parsed, "--output", "-o")
    if output not in (None, "text", "json"):
        raise Usage(f"--output takes text or json, not {output!r}.")
    return output == "json"


def wants_stdin(parsed: Parsed) -> bool:
    """Whether our input is passed on: with -i, or where it is a file or a pipe."""
    return parsed.has("-i") or parsed.has("--interactive") or not os.isatty(0)


def user(parsed: Parsed) -> str | None:
    """The user that the command line names; None is the image's."""
    return either(parsed, "--user", "-u") or None


def either(parsed: Parsed, *options: str) -> str | None:
    """The value of an option that has several names."""
    return next((value for o in options if (value := parsed.last(o)) is not None), None)


def timeout_ms(parsed: Parsed) -> int | None:
    """The command line's time limit; None is the sandbox's, 0 none at all."""
    given = parsed.last("--timeout")
    if given is None:
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 2_592_000:
        raise Usage(f"--timeout takes seconds from 0 to 2592000, not {given!r}.")
    # Rounded up: 0 would be no limit at all.
    return math.ceil(seconds * 1000)


def _asks_terminal(parsed: Parsed) -> bool:
    return parsed.has("-t") or parsed.has("--tty")


def _terminal_environment(parsed: Parsed) -> dict[str, str]:
    return {"TERM": os.environ["TERM"]} if wants_terminal(parsed) and "TERM" in os.environ else {}


def _given_environment(parsed: Parsed) -> dict[str, str]:
    env = {}
    for word in (*parsed.values.get("--env", ()), *parsed.values.get("-e", ())):
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise Usage(f"--env takes NAME=VALUE, not {word!r}.")
        env[name] = value
    return env
