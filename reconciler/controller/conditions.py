"""Conditions: what can be said of a sandbox, each with a reason and since when. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from reconciler.confinement.facts import Verdict
from reconciler.engine import contact, drift, plan
from reconciler.engine.outcome import Again, Done, GaveUp, Outcome

if TYPE_CHECKING:
    from reconciler.engine.observe import Observation
    from reconciler.engine.spec import Spec

Truth = Literal["True", "False", "Unknown"]
GENERATION_CHARACTERS = 12


@dataclass(frozen=True, slots=True)
class Condition:
    """One statement, as in Kubernetes: `observed_generation` is the start of the spec's digest.

    `last_transition_time` is when `status` last changed, RFC 3339 in UTC.
    """

    type: str
    status: Truth
    reason: str
    message: str = ""
    observed_generation: str = ""
    last_transition_time: str = ""

    def to_json(self) -> dict[str, Any]:
        """The JSON object that `from_json` takes."""
        return asdict(self)

    def of_now(self) -> dict[str, Any]:
        """The JSON object of a condition that is not kept, so that nobody knows since when."""
        value = asdict(self)
        del value["last_transition_time"], value["observed_generation"]
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Condition:
        """A condition of a status file; ValueError or TypeError when it is none."""
        condition = cls(**{key: str(text) for key, text in value.items()})  # type: ignore[arg-type]
        if condition.status not in {"True", "False", "Unknown"}:
            raise ValueError("not a condition")
        return condition


def generation(spec: Spec | None) -> str:
    """The name of a spec in conditions; empty for none."""
    return spec.digest[:GENERATION_CHARACTERS] if spec else ""


def since(
    new: Iterable[Condition], old: Iterable[Condition], *, now: str, spec: Spec | None
) -> tuple[Condition, ...]:
    """Date each new condition: the old one's time as long as the status is the same."""
    before = {condition.type: condition for condition in old}
    dated = []
    for condition in new:
        was = before.get(condition.type)
        same = was is not None and was.status == condition.status
        time = was.last_transition_time if same and was is not None else now
        dated.append(
            replace(condition, last_transition_time=time, observed_generation=generation(spec))
        )
    return tuple(dated)


def of_sandbox(
    spec: Spec | None, seen: Observation | None, outcome: Outcome | None
) -> tuple[Condition, ...]:
    """Built, Running, Confined, Frozen if it is, Warm if declared, and Ready.

    Without a spec only why it is not ready.

    Nothing is said of a sandbox that was destroyed as it should be.
    """
    if spec is None:
        if isinstance(outcome, Done):
            return ()
        return (_failure(outcome) or Condition("Ready", "False", "NotAccepted"),)
    if seen is None:
        return (Condition("Ready", "Unknown", "NotSeen", "it could not be looked at"),)
    always = (_built(seen), _running(spec, seen), _confined(seen))
    parts = (*always, *_frozen(spec, seen), *_warm(spec, seen))
    return (*parts, _ready(spec, seen, outcome))


def _built(seen: Observation) -> Condition:
    if seen.built:
        return Condition("Built", "True", "Built")
    return Condition("Built", "False", "NotBuilt", "nothing to start from is built yet")


def _running(spec: Spec, seen: Observation) -> Condition:
    if seen.running:
        return Condition("Running", "True", "Running")
    if plan.stays_down(spec, seen):
        message = f"{', '.join(seen.drifts)} differed; `box up {spec.name}` starts a fresh VM"
        return Condition("Running", "False", "StoppedForDrift", message)
    if spec.state == "running":
        reason, message = ("Ended", "its VMM has ended") if seen.vm else ("NotStarted", "")
        return Condition("Running", "False", reason, message)
    return Condition("Running", "False", "AsDeclared", f"declared `state: {spec.state}`")


def _confined(seen: Observation) -> Condition:
    if not seen.running:
        return Condition("Confined", "Unknown", "NotRunning")
    if not seen.facts:
        return Condition("Confined", "Unknown", "NotRead", "the VMM was not read back")
    failed = [fact for fact in seen.facts if fact.failed]
    if not failed:
        return Condition("Confined", "True", "AsPromised", f"{len(seen.facts)} facts read back")
    differs = any(fact.verdict is Verdict.DIFFERS for fact in failed)
    message = "; ".join(f"{fact.promise}: {fact.have}" for fact in failed)
    return Condition("Confined", "False", "Differs" if differs else "Unreadable", message)


def _frozen(spec: Spec, seen: Observation) -> tuple[Condition, ...]:
    """Whether it stands still; nothing of one that nobody froze."""
    if seen.frozen is None:
        return ()
    name, frozen = spec.name, seen.frozen
    message = f"since {frozen.since}: {frozen.why}; `box thaw {name}` lets it go on"
    if frozen.reason == contact.NO_SPACE:
        message += f"; with room on that file system `box watch` does, or `box up {name}`"
    if frozen.stands:
        return (Condition("Frozen", "True", frozen.reason, message),)
    return (Condition("Frozen", "False", "LetGoOn", f"{message}, and nothing else should"),)


def _warm(spec: Spec, seen: Observation) -> tuple[Condition, ...]:
    """Whether as many VMs wait as declared. Nothing that runs needs them: Ready does without."""
    if not spec.warm or spec.state == "stopped":
        return ()
    fit = sum(1 for each in seen.waiting if each.vm.ready and not each.fault)
    message = f"{fit} of {spec.warm} VMs wait for a command"
    if fit >= spec.warm:
        return (Condition("Warm", "True", "Filled", message),)
    if seen.warm_trouble is not None and seen.warm_trouble.spec == spec.digest:
        return (Condition("Warm", "False", "Failed", f"{message}; {seen.warm_trouble.message}"),)
    return (Condition("Warm", "False", "Filling", message),)


def _ready(spec: Spec, seen: Observation, outcome: Outcome | None) -> Condition:
    failure = _failure(outcome)
    if failure is not None:
        return failure
    if seen.frozen is not None:
        return Condition("Ready", "False", "Frozen", seen.frozen.why)
    if seen.confined is False:
        return Condition("Ready", "False", "NotConfined", drift.said(seen.differences))
    if seen.stopped is not None:
        return Condition("Ready", "False", "Halted", contact.stopped(seen.stopped))
    if plan.stays_down(spec, seen):
        return Condition("Ready", "False", "StoppedForDrift", ", ".join(seen.drifts))
    if seen.running != (spec.state == "running"):
        return Condition("Ready", "False", "Converging", f"declared `state: {spec.state}`")
    if spec.state == "built" and not seen.built:
        return Condition("Ready", "False", "Converging", "declared `state: built`")
    return Condition("Ready", "True", "Converged")


def _failure(outcome: Outcome | None) -> Condition | None:
    match outcome:
        case GaveUp(error=error):
            return Condition("Ready", "False", "GaveUp", str(error))
        case Again(error=error):
            return Condition("Ready", "False", "Retrying", str(error))
        case Done() | None:
            return None
