"""`thaw`: a person has looked at a frozen VM, and lets it go on."""

from __future__ import annotations

from typing import Annotated

import typer

from reconciler.boxfile.names import check_name
from reconciler.engine import drift, freezing, observe, records, space
from reconciler.engine.home import open_home
from reconciler.errors import NotFound
from reconciler.surfaces.cli.terminal import tell


def thaw(
    name: Annotated[str, typer.Argument(help="The sandbox: its Boxfile's name.")],
) -> None:
    """Let the frozen VM of NAME go on, and count what differed as known.

    A difference that is still there is found again when it is read next, and the VM frozen again:
    mend it first, or declare `on_drift: alert`. A command in it goes on where it was.
    """
    home = open_home()
    # Nothing is made for a name that nobody knows.
    if not (home / "sandboxes" / check_name(name)).is_dir():
        raise NotFound(f"There is no sandbox {name}.", hint="box ls")
    if not freezing.thaw(home, name):
        typer.echo(f"{name} is not frozen")
        return
    typer.echo(f"{name} goes on")
    if space.is_short(home):
        tell("box: its file system is nearly full: who looks on pauses it again when it writes")
    vm = records.vm_record(home, name)
    still = [fact for fact in observe.read_facts(home, vm) if fact.failed] if vm else []
    if still:
        again = ", and it will be frozen again" if vm and vm.spec.on_drift == "freeze" else ""
        tell(f"box: it still differs{again}: {drift.said(still)}")
