"""`up` and `down`: one pass over one sandbox, towards a state that the command line names."""

from __future__ import annotations

from pathlib import Path

from reconciler.engine import drift, space
from reconciler.engine.home import open_home, sandbox_directory
from reconciler.linux import files
from reconciler.surfaces import declared, standing
from reconciler.surfaces.cli import asking
from reconciler.surfaces.cli.endings import unwinding
from reconciler.surfaces.cli.options import Parsed
from reconciler.surfaces.cli.terminal import progress, say


def up(parsed: Parsed) -> int:
    """Start the sandbox's VM if it is not running."""
    name = asking.only_name(parsed)
    home = open_home()
    # Refused where it is no sandbox, before anything is written of it.
    declared.sandbox(home, name)
    _acknowledge(home, name)
    with unwinding():
        vm = standing.converge(home, name, "running", progress(name)).vm
    if vm is not None:
        say(f"{name} is up: incarnation {vm.incarnation}, {vm.accelerator}, confined")
    return 0


def _acknowledge(home: Path, name: str) -> None:
    """Count what differed as known, unless its VM is frozen, and still has to be looked at."""
    with files.locked(sandbox_directory(home, name) / "lock"):
        space.let_go_on(home, name)
        standing.refuse_frozen(home, name)
        drift.acknowledge(home, name)


def down(parsed: Parsed) -> int:
    """Stop the sandbox's VM in order."""
    name = asking.only_name(parsed)
    with unwinding():
        standing.converge(open_home(), name, "stopped", progress(name))
    say(f"{name} is down; /data is kept")
    return 0
