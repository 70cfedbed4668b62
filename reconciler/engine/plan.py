"""The plan: what to do about one sandbox and why; pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.engine.observe import Observation
    from reconciler.engine.spec import Spec


class ActionKind(StrEnum):
    """What can be done to a sandbox."""

    BUILD = "build"
    START = "start"
    STOP = "stop"
    REPLACE = "replace"
    UPDATE = "update"
    DESTROY = "destroy"
    REAP = "reap"


@dataclass(frozen=True)
class Action:
    """One thing to do; `widening` names every change that gives the sandbox more than before."""

    kind: ActionKind
    sandbox: str
    reason: str
    widening: tuple[str, ...] = ()


def plan(spec: Spec | None, seen: Observation) -> tuple[Action, ...]:
    """What makes `seen` what `spec` says; () when it is so already.

    None is an absence that the caller has made sure of: the sandbox's VM goes, its /data stays.
    """
    actions = [
        Action(ActionKind.REAP, seen.name, f"VM {stray.vm} was left behind")
        for stray in seen.strays
    ]
    actions += [
        Action(ActionKind.REAP, seen.name, f"the record of VM {vm} cannot be read")
        for vm in seen.broken
    ]
    if spec is None:
        return (*actions, *_absent(seen))
    return (*actions, *_present(spec, seen))


def _absent(seen: Observation) -> list[Action]:
    record = seen.record
    if record is None and seen.vm is None:
        return []
    if record is not None and record.spec.protect:
        return []
    return [Action(ActionKind.DESTROY, seen.name, "its Boxfile is gone; /data is kept")]


def _present(spec: Spec, seen: Observation) -> list[Action]:
    name = seen.name
    old = seen.record.spec if seen.record else None
    changed = differences(old, spec) if old else ()
    wider = widenings(old, spec) if old else ()
    actions = []
    if old is None:
        actions.append(Action(ActionKind.UPDATE, name, "new Boxfile"))
    elif changed:
        reason = "changed: " + ", ".join(changed)
        actions.append(Action(ActionKind.UPDATE, name, reason, wider))
    if spec.state == "running":
        return actions + _running(spec, seen, changed, wider)
    if seen.vm is not None:
        left = "" if seen.running else "; what was left of its VM is taken away"
        stop = Action(ActionKind.STOP, name, f"declared `state: {spec.state}`{left}")
        # First, because it needs no room on a full disk, and may be what makes some.
        actions.insert(0, stop)
    if spec.state == "built" and not seen.built:
        actions.append(Action(ActionKind.BUILD, name, "nothing is built for it yet"))
    return actions


def _running(
    spec: Spec, seen: Observation, changed: tuple[str, ...], wider: tuple[str, ...]
) -> list[Action]:
    vm = seen.vm
    if not seen.running and seen.drifts and spec.on_drift == "stop":
        # Stopped for what was found. A fresh VM for the same guest is somebody's decision to make.
        return []
    if not seen.running:
        reason = "its VMM ended without us" if vm else "not running yet"
        return [Action(ActionKind.START, seen.name, reason)]
    if vm is not None and vm.spec.vm_digest != spec.vm_digest:
        reason = "changed: " + ", ".join(changed or differences(vm.spec, spec))
        return [Action(ActionKind.REPLACE, seen.name, reason, wider)]
    failed = [fact.promise for fact in seen.facts if fact.failed]
    if failed and spec.on_drift == "stop":
        reason = "confinement differs: " + ", ".join(failed)
        return [Action(ActionKind.STOP, seen.name, reason)]
    return []


def differences(old: Spec, new: Spec) -> tuple[str, ...]:
    """The fields that differ, as `name old→new`; values of `env` are not shown."""
    found = []
    for name, before in old.to_json().items():
        after = getattr(new, name)
        if before != after:
            found.append(name if name == "env" else f"{name} {before}→{after}")
    return tuple(found)


def widenings(old: Spec, new: Spec) -> tuple[str, ...]:
    """The differences that give the sandbox more reach than it had."""
    wider = {
        "isolation": (old.isolation, new.isolation) == ("strict", "standard"),
        "network": (old.network, new.network) == ("none", "bridge"),
        "readonly": old.readonly and not new.readonly,
        "on_drift": (old.on_drift, new.on_drift) == ("stop", "alert"),
    }
    return tuple(name for name, is_wider in wider.items() if is_wider)
