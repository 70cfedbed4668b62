"""The engine as the controller sees it: what it asks, and nothing of how it is done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from reconciler.engine import observe, passes, plan, records
from reconciler.engine.observe import Observation
from reconciler.engine.outcome import Outcome
from reconciler.engine.plan import Action
from reconciler.engine.records import SandboxRecord
from reconciler.engine.spec import Spec


class Engine(Protocol):
    """One sandbox, one pass. Safe to call from several threads for different names."""

    def names(self) -> tuple[str, ...]:
        """Every sandbox there is anything of."""

    def record(self, name: str) -> SandboxRecord | None:
        """What is recorded of one. Raises BoxError when it cannot be read."""

    def observe(self, name: str) -> Observation:
        """Look at one, its confinement included. Raises BoxError or OSError."""

    def plan(self, spec: Spec | None, seen: Observation) -> tuple[Action, ...]:
        """What would be done, and why. Pure."""

    def run_pass(
        self,
        name: str,
        spec: Spec | None,
        *,
        source: Path | None,
        folder: str | None,
        progress: Callable[[str], None],
    ) -> Outcome:
        """Do it. A sandbox's own failure is in the outcome."""


class LocalEngine:
    """The engine of this host, on one BOX_HOME.

    One that `fills_beside` leaves `warmup`, which may take its time, to a process of its own.
    """

    def __init__(self, home: Path, *, fills_beside: bool = False) -> None:
        self._home = home
        self._fills_beside = fills_beside

    def names(self) -> tuple[str, ...]:
        """See Engine."""
        return observe.names(self._home)

    def record(self, name: str) -> SandboxRecord | None:
        """See Engine."""
        return records.sandbox_record(self._home, name)

    def observe(self, name: str) -> Observation:
        """See Engine."""
        return observe.observe(self._home, name)

    def plan(self, spec: Spec | None, seen: Observation) -> tuple[Action, ...]:
        """See Engine."""
        return plan.plan(spec, seen)

    def run_pass(
        self,
        name: str,
        spec: Spec | None,
        *,
        source: Path | None,
        folder: str | None,
        progress: Callable[[str], None],
    ) -> Outcome:
        """See Engine."""
        return passes.run_pass(
            self._home,
            name,
            spec,
            source=source,
            folder=folder,
            progress=progress,
            fills_beside=self._fills_beside,
        )
