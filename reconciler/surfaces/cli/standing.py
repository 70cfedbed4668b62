"""`up` and `down`: one pass over one sandbox, towards a state that the command line names."""

from __future__ import annotations

from reconciler.engine import drift
from reconciler.engine.home import open_home
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
    drift.acknowledge(home, name)
    with unwinding():
        vm = standing.converge(home, name, "running", progress(name)).vm
    if vm is not None:
        say(f"{name} is up: incarnation {vm.incarnation}, {vm.accelerator}, confined")
    return 0


def down(parsed: Parsed) -> int:
    """Stop the sandbox's VM in order."""
    name = asking.only_name(parsed)
    with unwinding():
        standing.converge(open_home(), name, "stopped", progress(name))
    say(f"{name} is down; /data is kept")
    return 0
