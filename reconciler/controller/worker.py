"""What the worker threads do for one name: look, wait or work, and keep what is known of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from reconciler.controller import attempt
from reconciler.controller.attempt import Look
from reconciler.controller.backoff import Backoff, load_backoff, save_backoff
from reconciler.controller.desired import Order, Wish
from reconciler.controller.lanes import Job, Lane
from reconciler.controller.notes import Notes
from reconciler.controller.port import Engine
from reconciler.controller.status import keep_status, status_after_try
from reconciler.engine.observe import Observation
from reconciler.engine.outcome import Again, Done, GaveUp, Outcome
from reconciler.errors import BoxError, Busy
from reconciler.linux.identity import ProcessIdentity


class Worker:
    """The methods that take a name are called by one thread at a time for that name.

    `watch` is told which process to watch, `later` when to come again (monotonic seconds).
    """

    def __init__(
        self,
        engine: Engine,
        home: Path,
        folder: str,
        notes: Notes,
        *,
        watch: Callable[[str, ProcessIdentity | None], None],
        later: Callable[[str, float], None],
        stopping: threading.Event,
    ) -> None:
        self._engine = engine
        self._home = home
        self._folder = folder
        self._notes = notes
        self._watch = watch
        self._later = later
        self._stopping = stopping
        self._wishes: dict[str, Wish] = {}
        self._backoffs: dict[str, Backoff] = {}
        self._given_up: dict[str, tuple[GaveUp, str, str]] = {}

    def take(self, wishes: Iterable[Wish]) -> frozenset[str]:
        """Take over the wishes of a survey; the names for which something else is wanted now."""
        before, self._wishes = self._wishes, {wish.name: wish for wish in wishes}
        for gone in before.keys() - self._wishes.keys():
            self._backoffs.pop(gone, None)
            self._given_up.pop(gone, None)
            self._watch(gone, None)
        return frozenset(name for name in self._wishes if self._differs(name, before.get(name)))

    def _differs(self, name: str, before: Wish | None) -> bool:
        wish = self._wishes[name]
        if before is None or wish.essence != before.essence:
            return True
        # Touching the file of a sandbox that was given up is how a user says: try again.
        return name in self._given_up and wish.stamp != before.stamp

    def look(self, name: str) -> Job | None:
        """Find out what is to be done; do it if it is quick, else return it as a job."""
        wish = self._wishes.get(name)
        if wish is None or wish.order is Order.LEAVE:
            return None
        try:
            found = attempt.look(self._engine, wish)
        except (BoxError, OSError) as error:
            self._after(wish, attempt.failure(error), None)
            return None
        if self._must_wait(wish, found):
            return None
        if found.lane is None:
            self._pass(wish, found.seen)
            return None
        return Job(found.lane, found.urgency, lambda: self._job(wish))

    def broke(self, name: str, error: BaseException) -> None:
        """A pass ended by a mistake of ours, or because we are being stopped."""
        if self._stopping.is_set() and isinstance(error, KeyboardInterrupt):
            return
        self._notes.broke(name, error)
        wish = self._wishes.get(name)
        if wish is not None:
            self._after(wish, Again(0, BoxError(f"box failed: {error!r}")), None)

    def _must_wait(self, wish: Wish, found: Look) -> bool:
        """Whether the next try is not due yet. What stops or takes away never waits."""
        if wish.spec is None or found.lane is Lane.STOP:
            return False
        given_up = self._given_up.get(wish.name)
        if given_up is not None and found.actions:
            if given_up[1:] == (wish.spec.digest, wish.stamp):
                self._publish(wish, found.seen, given_up[0])
                return True
            del self._given_up[wish.name]
        backoff = self._backoff(wish)
        wait = backoff.wait_seconds(time.time())
        if not wait or not found.actions:
            return False
        self._later(wish.name, time.monotonic() + wait)
        return True

    def _job(self, wish: Wish) -> None:
        # While it waited for its lane another wish may have come, which another look will follow.
        current = self._wishes.get(wish.name)
        if current is not None and current.essence == wish.essence:
            self._pass(wish, None)

    def _pass(self, wish: Wish, seen: Observation | None) -> None:
        """Run the pass. What was just `seen` will do afterwards as well if nothing was done."""
        outcome = attempt.attempt(
            self._engine, wish, self._folder, lambda text: self._progress(wish.name, text)
        )
        idle = isinstance(outcome, Done) and not outcome.actions
        if seen is None or not idle:
            seen = attempt.seen_after(self._engine, wish.name)
        self._after(wish, outcome, seen)

    def _progress(self, name: str, text: str) -> None:
        if self._stopping.is_set():
            # The engine unwinds what it has begun, as for Ctrl-C in the main thread.
            raise KeyboardInterrupt
        self._notes.working(name, text)

    def _after(self, wish: Wish, outcome: Outcome, seen: Observation | None) -> None:
        """Draw the conclusions from a try."""
        if seen is not None:
            vm = seen.vm if seen.running else None
            self._watch(wish.name, vm.identity if vm else None)
        backoff = Backoff()
        if wish.spec is not None:
            backoff = self._count(wish, wish.spec.digest, outcome)
        elif isinstance(outcome, Again):
            self._later(wish.name, time.monotonic() + max(1.0, outcome.after_seconds))
        self._notes.passed(wish.name, outcome, stalled=backoff.stalled)
        self._publish(wish, seen, outcome, backoff)

    def _count(self, wish: Wish, digest: str, outcome: Outcome) -> Backoff:
        before = self._backoff(wish)
        now = time.time()
        match outcome:
            case Done(actions=actions):
                done = attempt.started(actions)
                backoff = before.started(now) if done else before.healthy(now)
            case Again(after_seconds=seconds, error=Busy()):
                # Somebody else works on it: no failure of the sandbox.
                self._later(wish.name, time.monotonic() + seconds)
                return before
            case Again(after_seconds=seconds):
                backoff = before.failed(now)
                wait = max(seconds, backoff.wait_seconds(now))
                self._later(wish.name, time.monotonic() + wait)
            case GaveUp():
                backoff = before
                self._given_up[wish.name] = (outcome, digest, wish.stamp)
        if backoff != before:
            self._backoffs[wish.name] = backoff
            save_backoff(self._home, wish.name, backoff)
        return backoff

    def _backoff(self, wish: Wish) -> Backoff:
        digest = wish.spec.digest if wish.spec else ""
        known = self._backoffs.get(wish.name) or load_backoff(self._home, wish.name)
        self._backoffs[wish.name] = known.for_spec(digest)
        return self._backoffs[wish.name]

    def _publish(
        self,
        wish: Wish,
        seen: Observation | None,
        outcome: Outcome,
        backoff: Backoff | None = None,
    ) -> None:
        if wish.spec is None:
            return
        status = status_after_try(wish, seen, outcome, backoff)
        error = keep_status(self._home, status, wish.spec)
        if error is not None:
            self._notes.trouble(wish.name, "status", f"cannot keep its status: {error.strerror}")
        else:
            self._notes.over(wish.name, "status")
