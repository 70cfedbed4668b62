"""What is last known of a sandbox, for people and programs: sandboxes/NAME/status.json."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.controller.backoff import Backoff
from reconciler.controller.conditions import Condition, generation, of_sandbox, since
from reconciler.engine.journal import now
from reconciler.errors import BoxError
from reconciler.linux import files

if TYPE_CHECKING:
    from reconciler.controller.desired import Wish
    from reconciler.engine.observe import Observation
    from reconciler.engine.outcome import Outcome
    from reconciler.engine.spec import Spec

# What only the one who tried knows, and a mere look must not overwrite.
_FROM_A_TRY = frozenset({"GaveUp", "Retrying", "Stalled"})


@dataclass(frozen=True)
class SandboxStatus:
    """The conditions of one sandbox and the generation they are about."""

    name: str
    generation: str = ""
    conditions: tuple[Condition, ...] = ()

    def condition(self, kind: str) -> Condition | None:
        """The condition of a type, None when nothing is said of it."""
        return next((each for each in self.conditions if each.type == kind), None)

    def to_json(self) -> dict[str, Any]:
        """The JSON object that is kept."""
        return {
            "name": self.name,
            "generation": self.generation,
            "conditions": [condition.to_json() for condition in self.conditions],
        }


def status_after_try(
    wish: Wish, seen: Observation | None, outcome: Outcome | None, backoff: Backoff | None = None
) -> SandboxStatus:
    """The status that follows from a pass, not dated yet."""
    conditions = (*wish.conditions, *of_sandbox(wish.spec, seen, outcome))
    if wish.faulty:
        why = Condition("Ready", "False", wish.accepted.reason, wish.accepted.message)
        conditions = tuple(why if _hides_fault(each) else each for each in conditions)
    if backoff is not None and backoff.stalled:
        message = f"{backoff.level} tries in a row failed; the next ones are far between"
        conditions = (*conditions, Condition("Stalled", "True", "TooManyFailures", message))
    return SandboxStatus(wish.name, generation(wish.spec), conditions)


def _hides_fault(condition: Condition) -> bool:
    """Whether it says that all is well, or nothing, where the file must be mended first."""
    ready = condition.type == "Ready"
    return ready and (condition.status == "True" or condition.reason == "NotAccepted")


def status_of_look(wish: Wish, seen: Observation | None, kept: SandboxStatus) -> SandboxStatus:
    """The status as it is now, with what an earlier try found as long as it still holds."""
    fresh = status_after_try(wish, seen, None)
    if kept.generation != fresh.generation:
        return fresh
    ready, tried = fresh.condition("Ready"), kept.condition("Ready")
    conditions = fresh.conditions
    if ready and tried and ready.reason == "Converging" and tried.reason in _FROM_A_TRY:
        conditions = tuple(tried if each is ready else each for each in conditions)
        stalled = kept.condition("Stalled")
        conditions = (*conditions, stalled) if stalled else conditions
    return replace(fresh, conditions=conditions)


def dated(status: SandboxStatus, kept: SandboxStatus, spec: Spec | None) -> SandboxStatus:
    """The same with the times of its conditions, from what was kept."""
    return replace(
        status, conditions=since(status.conditions, kept.conditions, now=now(), spec=spec)
    )


def load_status(home: Path, name: str) -> SandboxStatus:
    """What is kept of a sandbox; an empty status when nothing readable is."""
    try:
        value = files.read_json(_path(home, name))
        conditions = tuple(Condition.from_json(each) for each in value["conditions"])
        return SandboxStatus(name, str(value["generation"]), conditions)
    except (OSError, BoxError, AttributeError, KeyError, TypeError, ValueError):
        return SandboxStatus(name)


def keep_status(home: Path, status: SandboxStatus, spec: Spec | None) -> OSError | None:
    """Date and keep a status if it says anything new; the error when it cannot be kept.

    Kept only of sandboxes that have a directory: a bad file alone makes none.
    """
    kept = load_status(home, status.name)
    new = dated(status, kept, spec)
    path = _path(home, status.name)
    if new == kept or not path.parent.is_dir():
        return None
    try:
        files.write_json(path, new.to_json())
    except OSError as error:
        return error
    return None


def _path(home: Path, name: str) -> Path:
    return home / "sandboxes" / name / "status.json"
