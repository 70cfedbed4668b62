"""`up` and `down`: one pass over one sandbox, towards a state that the command line names."""

from __future__ import annotations

from dataclasses import replace

from reconciler.engine import drift, passes, records
from reconciler.engine.home import open_home
from reconciler.engine.outcome import Done
from reconciler.errors import Refused
from reconciler.surfaces import declared
from reconciler.surfaces.cli import asking
from reconciler.surfaces.cli.endings import unwinding
from reconciler.surfaces.cli.options import Parsed
from reconciler.surfaces.cli.terminal import progress, say


def up(parsed: Parsed) -> int:
    """Start the sandbox's VM if it is not running."""
    return _converge(asking.only_name(parsed), "running")


def down(parsed: Parsed) -> int:
    """Stop the sandbox's VM in order."""
    return _converge(asking.only_name(parsed), "stopped")


def _converge(name: str, state: str) -> int:
    home = open_home()
    spec, source, folder = declared.sandbox(home, name)
    if state == "running":
        drift.acknowledge(home, name)
    with unwinding():
        outcome = passes.run_pass(
            home,
            name,
            replace(spec, state=state),
            source=source,
            folder=folder,
            progress=progress(name),
        )
    if not isinstance(outcome, Done):
        raise outcome.error
    vm = records.vm_record(home, name)
    if vm is None and state == "running":
        reasons = [action.reason for action in outcome.actions]
        raise Refused(f"{name} is not up.", details="\n".join(reasons))
    if vm is None:
        say(f"{name} is down; /data is kept")
    else:
        say(f"{name} is up: incarnation {vm.incarnation}, {vm.accelerator}, confined")
    return 0
