"""One try at one sandbox: what it will take, the pass itself, and what is known afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reconciler.controller.desired import Order, Wish
from reconciler.controller.lanes import Lane, Urgency
from reconciler.controller.port import Engine
from reconciler.engine.observe import Observation
from reconciler.engine.outcome import Again, Outcome
from reconciler.engine.plan import Action, ActionKind
from reconciler.errors import BoxError, as_box_error

_STARTING = frozenset({ActionKind.START, ActionKind.REPLACE})
_STOPPING = frozenset(
    {ActionKind.STOP, ActionKind.FREEZE, ActionKind.DESTROY, ActionKind.REAP, ActionKind.DRAIN}
)
_SLOW = frozenset({ActionKind.BUILD, ActionKind.WARM})
_RETRY_SECONDS = 10.0


@dataclass(frozen=True)
class Look:
    """A sandbox as it is, and what a pass would do about it."""

    seen: Observation
    actions: tuple[Action, ...]

    @property
    def lane(self) -> Lane | None:
        """Where the pass belongs; None when it is short enough to be done at once."""
        kinds = {each.kind for each in self.actions}
        if kinds & _SLOW or (kinds & _STARTING and not self.seen.built):
            return Lane.BUILD
        if kinds & _STARTING:
            return Lane.START
        return Lane.STOP if kinds & _STOPPING else None

    @property
    def urgency(self) -> Urgency:
        """How soon, within its lane."""
        if any(each.kind is ActionKind.DESTROY for each in self.actions):
            return Urgency.DELETE
        return Urgency.HEAL if self.seen.record is not None else Urgency.CREATE


def look(engine: Engine, wish: Wish) -> Look:
    """Observe and plan; changes nothing. Raises BoxError or OSError when it cannot be seen."""
    seen = engine.observe(wish.name)
    if wish.order is Order.LEAVE:
        return Look(seen, ())
    return Look(seen, engine.plan(wish.spec, seen))


def attempt(engine: Engine, wish: Wish, folder: str, progress: Callable[[str], None]) -> Outcome:
    """Give the sandbox its pass; a failure of any kind is an outcome."""
    try:
        return engine.run_pass(
            wish.name, wish.spec, source=wish.source, folder=folder, progress=progress
        )
    except (BoxError, OSError) as error:
        return failure(error)


def failure(error: Exception) -> Again:
    """The outcome of a try that failed outside of the engine's own account of it."""
    return Again(_RETRY_SECONDS, as_box_error(error))


def seen_after(engine: Engine, name: str) -> Observation | None:
    """The sandbox as it is after a try; None when it cannot be seen."""
    try:
        return engine.observe(name)
    except (BoxError, OSError):
        return None


def started(actions: tuple[Action, ...]) -> bool:
    """Whether a pass that did these started a VM."""
    return any(each.kind in _STARTING for each in actions)
