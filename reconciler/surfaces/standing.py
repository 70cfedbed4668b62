"""The VM that a sandbox has while it is up: one pass, towards a state that is asked for now."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from reconciler.engine import contact, passes, records
from reconciler.engine.outcome import Done
from reconciler.engine.parts import Progress
from reconciler.engine.plan import ActionKind
from reconciler.engine.records import VmRecord
from reconciler.errors import Refused
from reconciler.linux import files, identity
from reconciler.surfaces import declared


class Converged(NamedTuple):
    """What the pass came to: the VM, None when there is none, and whether it was started for it."""

    vm: VmRecord | None
    started: bool
    stopped: bool

    @property
    def incarnation(self) -> int | None:
        """Which one in the sandbox's history that VM is."""
        return self.vm.incarnation if self.vm else None


def converge(home: Path, name: str, state: str, progress: Progress) -> Converged:
    """Bring the sandbox to `state`, "running" or "stopped", whatever its Boxfile says.

    Raises the pass's error, and Refused when it is not up although nothing failed: what was
    stopped for a difference in its confinement stays so until that is acknowledged. Raises Frozen
    when it is to run and stands still.
    """
    spec, source, folder = declared.sandbox(home, name)
    wanted = replace(spec, state=state)
    outcome = passes.run_pass(home, name, wanted, source=source, folder=folder, progress=progress)
    if not isinstance(outcome, Done):
        raise outcome.error
    vm = records.vm_record(home, name)
    if vm is None and state == "running":
        reasons = [action.reason for action in outcome.actions]
        raise Refused(
            f"{name} is not up.", details="\n".join(reasons) or None, hint=f"box up {name}"
        )
    if state == "running":
        refuse_frozen(home, name)
    kinds = {action.kind for action in outcome.actions}
    return Converged(vm, ActionKind.START in kinds, ActionKind.STOP in kinds)


def refuse_frozen(home: Path, name: str) -> None:
    """Raise Frozen when the VM that a sandbox has is frozen."""
    directory = home / "run" / name
    if not contact.is_frozen(directory):
        return
    with contextlib.suppress(files.BrokenFile):
        vm = records.vm_record(home, name)
        if vm is not None and identity.runs(vm.identity):
            raise contact.frozen(name, directory)
