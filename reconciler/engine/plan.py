"""The plan: what to do about one sandbox and why; pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from reconciler.boxfile.changes import Change, changes
from reconciler.data import disk
from reconciler.engine import contact, drift
from reconciler.engine.warm import is_same

if TYPE_CHECKING:
    from reconciler.confinement.facts import Fact
    from reconciler.engine.observe import Observation
    from reconciler.engine.spec import Spec
    from reconciler.errors import Refused


class ActionKind(StrEnum):
    """What can be done to a sandbox."""

    BUILD = "build"
    START = "start"
    STOP = "stop"
    REPLACE = "replace"
    FREEZE = "freeze"
    UPDATE = "update"
    DESTROY = "destroy"
    REAP = "reap"
    WARM = "warm"
    DRAIN = "drain"


_ANSWERS = {"freeze": ActionKind.FREEZE, "stop": ActionKind.STOP}


@dataclass(frozen=True)
class Action:
    """One thing to do, with the changes of the Boxfile it makes so."""

    kind: ActionKind
    sandbox: str
    reason: str
    changes: tuple[Change, ...] = ()
    vm: str = ""
    """The VM to drain."""
    differences: tuple[Fact, ...] = ()
    """What was found less confined than promised, where that is why."""

    @property
    def widening(self) -> tuple[str, ...]:
        """The fields whose change gives the sandbox more reach than it had."""
        return tuple(change.field for change in self.changes if change.widening)


def plan(spec: Spec | None, seen: Observation) -> tuple[Action, ...]:
    """What makes `seen` what `spec` says; () when it is so already.

    Raises Refused for a change of /data's disk that cannot be made, so that what runs goes on.
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
    return (*actions, *_drained(spec, seen), *_present(spec, seen), *_warmed(spec, seen))


def _absent(seen: Observation) -> list[Action]:
    record = seen.record
    if record is None and seen.vm is None and not seen.waiting:
        return []
    if record is not None and record.spec.protect:
        return []
    return [Action(ActionKind.DESTROY, seen.name, "its Boxfile is gone; /data is kept")]


def _present(spec: Spec, seen: Observation) -> list[Action]:
    name = seen.name
    old = seen.record.spec if seen.record else None
    changed = differences(old, spec) if old else ()
    actions = []
    if old is None:
        actions.append(Action(ActionKind.UPDATE, name, "new Boxfile"))
    elif changed:
        actions.append(Action(ActionKind.UPDATE, name, _changed(changed), changed))
    if spec.state == "running":
        return actions + _running(spec, seen)
    if seen.vm is not None:
        left = "" if seen.running else "; what was left of its VM is taken away"
        stop = Action(ActionKind.STOP, name, f"declared `state: {spec.state}`{left}")
        # First, because it needs no room on a full disk, and may be what makes some.
        actions.insert(0, stop)
    # What is seen to be built was built for the spec of the record.
    if spec.state == "built" and not (seen.built and old and old.vm_digest == spec.vm_digest):
        actions.append(Action(ActionKind.BUILD, name, "nothing is built for it yet"))
    return actions


def stays_down(spec: Spec, seen: Observation) -> bool:
    """Whether it was ended for what was found, so that a fresh VM is somebody's decision to make.

    A frozen VM that ended, by whatever, is no other case.
    """
    held = spec.state == "running" and spec.on_drift in {"freeze", "stop"}
    return held and not seen.running and bool(seen.drifts)


def _unfit(spec: Spec, seen: Observation) -> dict[str, tuple[str, tuple[Fact, ...]]]:
    """The waiting VMs that `spec` has no use for, by name, why, and what differs."""
    unfit, fit = {}, 0
    for each in seen.waiting:
        why = each.fault
        if not why and spec.state == "stopped":
            why = "declared `state: stopped`"
        elif not why and not is_same(spec, each.vm.spec):
            why = "it was made for another declaration"
        elif not why and fit >= spec.warm:
            why = f"declared `warm: {spec.warm}`"
        if why:
            unfit[each.vm.vm] = why, each.differences
        else:
            fit += 1
    return unfit


def _drained(spec: Spec, seen: Observation) -> list[Action]:
    return [
        Action(ActionKind.DRAIN, seen.name, f"waiting VM {vm}: {why}", vm=vm, differences=differ)
        for vm, (why, differ) in _unfit(spec, seen).items()
    ]


def _warmed(spec: Spec, seen: Observation) -> list[Action]:
    there = len(seen.waiting) - len(_unfit(spec, seen))
    held_up = seen.warm_trouble is not None and seen.warm_trouble.spec == spec.digest
    if spec.state == "stopped" or there >= spec.warm or held_up:
        return []
    return [Action(ActionKind.WARM, seen.name, f"{there} of {spec.warm} VMs wait for a command")]


def _running(spec: Spec, seen: Observation) -> list[Action]:
    if stays_down(spec, seen):
        return []
    paused = seen.frozen is not None and seen.frozen.reason == contact.NO_SPACE
    if seen.frozen is not None and not paused:
        return [] if seen.frozen.stands else [_answer(ActionKind.FREEZE, seen)]
    # Before it is replaced too: the difference is what somebody has to see.
    if seen.differences and spec.on_drift in _ANSWERS:
        return [_answer(_ANSWERS[spec.on_drift], seen)]
    if paused:
        # To replace it now would cost what it has not written to /data yet.
        return []
    vm = seen.vm
    outdated = seen.running and vm is not None and vm.spec.vm_digest != spec.vm_digest
    refusal = _refused_disk(spec, seen)
    if refusal and (outdated or not seen.running):
        raise refusal
    if not seen.running:
        reason = "its VMM ended without us" if vm else "not running yet"
        return [Action(ActionKind.START, seen.name, reason)]
    if outdated and vm is not None:
        changed = differences(vm.spec, spec)
        return [Action(ActionKind.REPLACE, seen.name, _changed(changed), changed)]
    return []


def _answer(kind: ActionKind, seen: Observation) -> Action:
    reason = "something else let it go on"
    if seen.differences:
        reason = f"confinement differs: {drift.said(seen.differences)}"
    return Action(kind, seen.name, reason, differences=seen.differences)


def _refused_disk(spec: Spec, seen: Observation) -> Refused | None:
    if seen.data_bytes is None or seen.data_bytes == spec.data_bytes:
        return None
    return disk.resize_refusal(seen.data_bytes, spec.data_bytes)


def differences(old: Spec, new: Spec) -> tuple[Change, ...]:
    """The fields that differ, with what each change does."""
    return changes(old.to_json(), new.to_json())


def _changed(found: tuple[Change, ...]) -> str:
    return "changed: " + ", ".join(map(str, found))
