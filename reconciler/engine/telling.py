"""The event of each action: what was done, why, and of which difference."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.engine import journal
from reconciler.engine.plan import Action, ActionKind

if TYPE_CHECKING:
    from reconciler.engine.observe import Observation
    from reconciler.engine.records import VmRecord

_REASONS = {
    ActionKind.REAP: "Reaped",
    ActionKind.UPDATE: "Accepted",
    ActionKind.BUILD: "Built",
    ActionKind.START: "Started",
    ActionKind.STOP: "Stopped",
    ActionKind.REPLACE: "Replaced",
    ActionKind.FREEZE: "Frozen",
    ActionKind.DESTROY: "Destroyed",
    ActionKind.DRAIN: "Drained",
}


def tell(home: Path, action: Action, seen: Observation) -> None:
    """Record that an action was done: a Warning if it answers a difference in the confinement."""
    data: dict[str, Any] = {}
    if action.widening:
        data["widening"] = list(action.widening)
    alarm = bool(action.differences) or action.kind is ActionKind.FREEZE
    if alarm:
        data |= _found(action, seen)
    kind = "Warning" if alarm else "Normal"
    journal.record(home, action.sandbox, kind, _REASONS[action.kind], action.reason, **data)


def _found(action: Action, seen: Observation) -> dict[str, Any]:
    vm = _vm(action, seen)
    who = vm.identity if vm else None
    return {
        "differences": [
            {"promise": each.promise, "want": each.want, "have": each.have}
            for each in action.differences
        ],
        "vm": vm.vm if vm else None,
        "incarnation": vm.incarnation if vm else None,
        "pid": who.pid if who else None,
        "start_time_ticks": who.start_time_ticks if who else None,
    }


def _vm(action: Action, seen: Observation) -> VmRecord | None:
    if not action.vm:
        return seen.vm
    return next((each.vm for each in seen.waiting if each.vm.vm == action.vm), None)
