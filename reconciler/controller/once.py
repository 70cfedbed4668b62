"""Converging once: every name of a folder gets one pass, one after the other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reconciler.controller import attempt
from reconciler.controller.backoff import load_backoff, save_backoff
from reconciler.controller.desired import Order, Wish
from reconciler.controller.folder import Folder
from reconciler.controller.lock import folder_lock
from reconciler.controller.port import Engine
from reconciler.controller.status import SandboxStatus, keep_status, status_after_try
from reconciler.controller.survey import Survey, Surveyor
from reconciler.engine.observe import Observation
from reconciler.engine.outcome import Again, Done, GaveUp, Outcome
from reconciler.engine.plan import Action
from reconciler.errors import BoxError, Missing

_LONGEST_SETTLING_SECONDS = 5.0

Report = Callable[[str, str], None]
"""Told of progress: the sandbox's name and what is being done."""


@dataclass(frozen=True)
class Planned:
    """What would be done about one name, or why it cannot be told."""

    wish: Wish
    seen: Observation | None
    actions: tuple[Action, ...]
    error: BoxError | None = None


@dataclass(frozen=True)
class Converged:
    """How the pass over one name went."""

    wish: Wish
    outcome: Outcome | None
    seen: Observation | None
    status: SandboxStatus

    @property
    def actions(self) -> tuple[Action, ...]:
        """What was done."""
        return self.outcome.actions if isinstance(self.outcome, Done) else ()

    @property
    def failed(self) -> bool:
        """Whether it is not as its file says, or the file says nothing that can be done."""
        ready = self.status.condition("Ready")
        if self.wish.order is Order.DESTROY:
            return not isinstance(self.outcome, Done)
        return self.wish.faulty or ready is None or ready.status != "True"


def settled_survey(surveyor: Surveyor, confirmed: str | None = None) -> Survey:
    """A survey taken when nothing is in the middle of being written, or after a bounded wait."""
    deadline = time.monotonic() + _LONGEST_SETTLING_SECONDS
    while True:
        survey = surveyor.survey(confirmed)
        if not survey.settling or time.monotonic() > deadline:
            return survey
        time.sleep(survey.look_again_seconds or 0.0)


def plan_once(engine: Engine, survey: Survey) -> Iterator[Planned]:
    """What a pass over each name would do. Changes nothing."""
    for wish in survey.wishes:
        try:
            found = attempt.look(engine, wish)
        except (BoxError, OSError) as error:
            yield Planned(wish, None, (), attempt.failure(error).error)
        else:
            yield Planned(wish, found.seen, found.actions)


@contextlib.contextmanager
def held_folder(home: Path, folder: Folder) -> Iterator[None]:
    """Hold the folder as its controller. Raises Missing, or TwoControllers."""
    identity = folder.identity()
    if identity is None:
        raise Missing(f"There is no folder {folder.path}.", hint=f"mkdir {folder.path}")
    with folder_lock(home, identity):
        yield


def converge_once(
    engine: Engine, home: Path, survey: Survey, report: Report
) -> Iterator[Converged]:
    """Give every name its pass: first those that exist, then the new ones.

    Runs in the caller's thread, so that Ctrl-C unwinds what is being started.
    """
    for wish in sorted(survey.wishes, key=lambda each: (not each.known, each.name)):
        yield _converge(engine, home, wish, str(survey.scan.path), report)


def _converge(engine: Engine, home: Path, wish: Wish, folder: str, report: Report) -> Converged:
    if wish.order is Order.LEAVE:
        return Converged(wish, None, None, status_after_try(wish, None, None))
    outcome = attempt.attempt(engine, wish, folder, lambda text: report(wish.name, text))
    seen = attempt.seen_after(engine, wish.name)
    status = status_after_try(wish, seen, outcome)
    if wish.spec is not None:
        _keep(home, wish, outcome, status)
    return Converged(wish, outcome, seen, status)


def _keep(home: Path, wish: Wish, outcome: Outcome, status: SandboxStatus) -> None:
    """A command is an order to try now: it does not wait for the backoff, but it counts."""
    if wish.spec is None:
        return
    before = load_backoff(home, wish.name)
    backoff = before.for_spec(wish.spec.digest)
    match outcome:
        case Done(actions=actions) if attempt.started(actions):
            backoff = type(backoff)(backoff.digest).started(time.time())
        case Again():
            backoff = backoff.failed(time.time())
        case Done() | GaveUp():
            pass
    if backoff != before:
        save_backoff(home, wish.name, backoff)
    keep_status(home, status, wish.spec)
