"""How a pass went: done, again later, or given up until something changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.engine.plan import Action
    from reconciler.errors import BoxError


@dataclass(frozen=True)
class Done:
    """All is as declared; `actions` is what it took."""

    actions: tuple[Action, ...] = ()


@dataclass(frozen=True)
class Again:
    """It failed in a way that may pass: another try is worth it, not before `after_seconds`."""

    after_seconds: float
    error: BoxError


@dataclass(frozen=True)
class GaveUp:
    """It failed in a way that only a change of the spec or the host mends."""

    error: BoxError


Outcome = Done | Again | GaveUp
