"""The typer app: every command that may take its time, and the help of those that may not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer

import reconciler
from reconciler.engine import observe, passes, records
from reconciler.engine.home import home_path, open_home
from reconciler.errors import NotFound, Refused
from reconciler.linux import files
from reconciler.surfaces import declared, render
from reconciler.surfaces.cli import (
    boxfiles,
    completion,
    converge,
    doctor,
    inspecting,
    logs,
    quickstart,
    thawing,
)
from reconciler.surfaces.cli.endings import unwinding
from reconciler.surfaces.cli.options import Usage
from reconciler.surfaces.cli.terminal import progress

Output = Annotated[
    Literal["text", "json"], typer.Option("--output", "-o", help="How to print: text or json.")
]
Result = Annotated[
    Literal["text", "json"],
    typer.Option(
        "--output", "-o", help="json: its output and end as one object; text: its output as it is."
    ),
]
Name = Annotated[str, typer.Argument(help="The sandbox: its Boxfile's name.")]

_COLUMNS = ("running", "built", "isolation", "incarnation", "source")

# The commands of `vm` are here for their help alone: `main` gives them to `vm` to run.
Command = Annotated[list[str], typer.Argument(help="The command and its arguments, after --.")]
Env = Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE; may be repeated.")]
Workdir = Annotated[str | None, typer.Option("--workdir", "-w", help="Directory to run it in.")]
User = Annotated[str | None, typer.Option("--user", "-u", help="Name or ID to run it as.")]
Timeout = Annotated[float | None, typer.Option("--timeout", help="Seconds; 0 is no limit.")]
Interactive = Annotated[
    bool, typer.Option("--interactive", "-i", help="Pass stdin on from a terminal too.")
]
Tty = Annotated[
    bool,
    typer.Option("--tty", "-t", help="Give it a terminal: ours, raw, with its size and TERM."),
]
NoData = Annotated[
    bool, typer.Option("--no-data", help="Without /data: any number at once, also while it is up.")
]
Wait = Annotated[
    float | None,
    typer.Option("--wait", help="Seconds to wait for /data while another VM has it; up to a day."),
]
_STATUS = (
    "Exit status: the command's; 124 when it took too long; 125 when box failed; 126 or 127 when "
    "it cannot be executed or is not there; 128+n when signal n ended it."
)

# What typer raises for a command line that is none: it keeps its own copy of click.
_UsageError = cast("type[Exception]", typer.BadParameter.__mro__[1])

app = typer.Typer(
    name="box",
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Gives untrusted code a machine of its own on your machine, and keeps it that way by "
    "declaration: a folder of Boxfiles is what should be, `box watch` makes it so.",
    epilog="Start here: box quickstart. Then: box run hello -- sh -c 'uname -a'",
)


def main(arguments: list[str]) -> int:
    """Run one command of the app and return its exit status."""
    try:
        result = app(arguments or ["--help"], standalone_mode=False, prog_name="box")
    except _UsageError as error:
        verb = arguments[0] if arguments and not arguments[0].startswith("-") else ""
        hint = f"box {verb} --help" if verb in _verbs() else "box --help"
        raise Usage(str(error), hint=hint) from error
    except SystemExit as error:
        # typer and rich make 1 of a reader that has gone, which is "differs" to `inspect`.
        if isinstance(error.__context__, BrokenPipeError):
            raise error.__context__ from None
        raise
    return result if isinstance(result, int) else 0


def _verbs() -> frozenset[str]:
    return frozenset(str(each.name) for each in app.registered_commands if each.name) | frozenset(
        each.callback.__name__ for each in app.registered_commands if each.callback
    )


@app.callback(invoke_without_command=True)
def _root(
    *, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    if version:
        typer.echo(f"box {reconciler.__version__}")
        raise typer.Exit


@app.command()
def build(name: Name) -> None:
    """Build all that a start of NAME needs, and prove that it gets a kernel of its own."""
    home = open_home()
    spec, _, _ = declared.sandbox(home, name)
    lock = home / "sandboxes" / name / "lock"
    with unwinding(), files.locked(lock):
        passes.build(home, spec, progress(name))
    typer.echo(f"{name} is built and proven")


@app.command("ls")
def list_sandboxes(output: Output = "text") -> None:
    """List all sandboxes that this home knows."""
    home = open_home()
    rows = [_row(home, name) for name in observe.names(home)]
    render.rows(rows, output)


def _row(home: Path, name: str) -> dict[str, Any]:
    try:
        seen = observe.observe(home, name, read_back=False)
    except files.BrokenFile as error:
        # One broken record hides no other sandbox.
        return {"name": name, **dict.fromkeys(_COLUMNS), "source": error.brief}
    found = (
        seen.running,
        seen.built,
        seen.record.spec.isolation if seen.record else None,
        seen.vm.incarnation if seen.vm else None,
        seen.record.source if seen.record else None,
    )
    return {"name": name, **dict(zip(_COLUMNS, found, strict=True))}


@app.command()
def destroy(
    name: Name,
    *,
    data: Annotated[bool, typer.Option("--data", help="Delete its /data too, for good.")] = False,
) -> None:
    """End NAME's VM and forget the sandbox; its /data is kept unless --data says otherwise.

    A sandbox whose Boxfile is still in a watched folder comes back with the next pass.
    """
    home = open_home()
    record = records.sandbox_record(home, name)
    if record is None and not (data and (home / "sandboxes" / name).is_dir()):
        raise NotFound(f"There is no sandbox {name}.", hint="box ls")
    if record is not None and record.spec.protect:
        raise Refused(f"{name} is protected.", hint="set `protect: false` in its Boxfile")
    with unwinding():
        passes.destroy(home, name, with_data=data, progress=progress(name))
    typer.echo(f"{name} is destroyed" + ("" if data else "; /data is kept"))


@app.command(epilog=_STATUS)
def run(
    name: Name,
    command: Command,
    *,
    env: Env = None,
    workdir: Workdir = None,
    user: User = None,
    timeout: Timeout = None,
    interactive: Interactive = False,
    tty: Tty = False,
    output: Result = "text",
    no_data: NoData = False,
    wait: Wait = None,
) -> None:
    """Run one command in a fresh VM of NAME, which is thrown away: box run NAME -- CMD..."""


@app.command(name="exec", epilog=_STATUS)
def execute(
    name: Name,
    command: Command,
    *,
    env: Env = None,
    workdir: Workdir = None,
    user: User = None,
    timeout: Timeout = None,
    interactive: Interactive = False,
    tty: Tty = False,
    output: Result = "text",
) -> None:
    """Run one command in the running VM of NAME: box exec NAME -- CMD..."""


@app.command(epilog=_STATUS)
def shell(
    name: Name,
    *,
    env: Env = None,
    workdir: Workdir = None,
    user: User = None,
    timeout: Timeout = None,
    interactive: Interactive = False,
) -> None:
    """Start the user's login shell in the running VM of NAME, in our terminal if we have one."""


@app.command()
def cp(
    source: Annotated[str, typer.Argument(help="What to copy: PATH, NAME:PATH, or - for a tar.")],
    target: Annotated[str, typer.Argument(help="Where to: PATH, NAME:PATH, or - for a tar.")],
    *,
    user: User = None,
    timeout: Timeout = None,
) -> None:
    """Copy files and folders into the running VM of NAME, or out of it: box cp web:/data/out .

    An existing folder gets what is copied inside it. Modes and times are kept, owners, special
    modes and attributes are not. A link below what is named is copied as it is; at the end of a
    destination here it is followed only with a slash behind it.
    """


@app.command()
def ps(name: Name, output: Output = "text") -> None:
    """List the processes in the running VM of NAME, whatever programs its image has.

    The kernel's own are left out. EXEC is the channel of the command that a process belongs to:
    one number is one command at a time.
    """


@app.command()
def up(name: Name) -> None:
    """Start the VM of NAME if it is not running: box up NAME."""


@app.command()
def down(name: Name) -> None:
    """Stop the VM of NAME in order; a controller starts it again as declared."""


@app.command()
def home() -> None:
    """Print where box keeps everything (BOX_HOME)."""
    typer.echo(home_path())


inspecting.register(app)
boxfiles.register(app)
converge.register(app)
app.command()(logs.logs)
app.command()(thawing.thaw)
quickstart.register(app)
doctor.register(app)
completion.register(app)
