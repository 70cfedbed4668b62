"""The loop: events wake it, a timer resyncs it, and it hands names that may differ to workers."""

from __future__ import annotations

import heapq
import queue
import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from reconciler.controller.desired import Wish
from reconciler.controller.exits import Exits
from reconciler.controller.folder import Folder
from reconciler.controller.lanes import Lanes, Urgency
from reconciler.controller.lock import confirmation_waits, take_confirmation
from reconciler.controller.notes import Notes
from reconciler.controller.port import Engine
from reconciler.controller.survey import Survey, Surveyor
from reconciler.controller.watcher import Watcher
from reconciler.controller.worker import Worker

_GRACE_SECONDS = 10.0
_GLANCE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Timing:
    """How often everything is looked at whatever happens, and how much that is spread."""

    resync_seconds: float = 10.0
    jitter: float = 0.2


@dataclass(frozen=True, slots=True)
class _Files:
    """Something in the folder may have changed."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A VMM has ended."""

    name: str


@dataclass(frozen=True, slots=True)
class _Later:
    """A worker wants another look at a name at a monotonic time."""

    name: str
    due: float


@dataclass(frozen=True, slots=True)
class _Stop:
    """The end."""


_Event = _Files | _Ended | _Later | _Stop


class Loop:
    """Keeps one folder converged until it is stopped. The VMs outlive it."""

    def __init__(
        self,
        engine: Engine,
        home: Path,
        folder: Folder,
        log: structlog.stdlib.BoundLogger,
        timing: Timing = Timing(),  # frozen
    ) -> None:
        self._home = home
        self._folder = folder
        self._timing = timing
        self._log = log
        self._notes = Notes(home, log)
        # SimpleQueue: a signal handler may put into it at any moment.
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._surveyor = Surveyor(engine, home, folder)
        self._exits = Exits(lambda name: self._events.put(_Ended(name)))
        self._watcher = Watcher(lambda: self._events.put(_Files()))
        self._worker = Worker(
            engine,
            home,
            str(folder.path),
            self._notes,
            watch=self._exits.watch,
            later=lambda name, due: self._events.put(_Later(name, due)),
            stopping=self._stopping,
        )
        self._lanes = Lanes(self._worker.look, self._worker.broke)
        self._due: list[tuple[float, str]] = []
        self._resync_due = 0.0
        self._survey_due = 0.0
        self._glanced: object = None

    def stop(self) -> None:
        """End the loop soon. Safe in a signal handler, and twice."""
        self._stopping.set()
        self._events.put(_Stop())

    def run(self) -> None:
        """Converge until stopped; the first look is at everything."""
        self._log.info("started", folder=str(self._folder.path))
        self._lanes.start()
        self._exits.start()
        try:
            while not self._stopping.is_set():
                self._turn()
                self._wait()
        finally:
            self._end()

    def _end(self) -> None:
        self._watcher.stop()
        busy = self._lanes.busy()
        if busy:
            self._log.info("finishing", sandboxes=sorted(busy), at_most_seconds=_GRACE_SECONDS)
        left = self._lanes.stop(_GRACE_SECONDS)
        self._exits.stop()
        if left:
            self._log.warning("left unfinished; the next pass repairs", sandboxes=sorted(left))
        self._log.info("stopped; the VMs run on")

    def _turn(self) -> None:
        now = time.monotonic()
        resync = now >= self._resync_due
        if resync:
            spread = 1 + self._timing.jitter * (random.random() - 0.5)  # noqa: S311  # no secret
            self._resync_due = now + self._timing.resync_seconds * spread
        if resync or now >= self._survey_due:
            self._survey(everything=resync)
        while self._due and self._due[0][0] <= now:
            self._lanes.submit(heapq.heappop(self._due)[1], Urgency.HEAL)

    def _survey(self, *, everything: bool) -> None:
        survey = self._surveyor.survey(take_confirmation(self._home, self._folder.path))
        scan = survey.scan
        self._watcher.watch(scan.path, scan.subfolders, scan.identity)
        self._keep(survey)
        self._notes.surveyed(survey)
        changed = self._worker.take(survey.wishes)
        for wish in survey.wishes:
            if everything or wish.name in changed:
                self._lanes.submit(wish.name, _urgency(wish))
        self._survey_due = time.monotonic() + self._next_survey(survey)

    def _next_survey(self, survey: Survey) -> float:
        """A scan costs a stat a file; while events cannot be relied on, it stands in for them."""
        waits = [_GLANCE_SECONDS if self._watcher.degraded else self._timing.resync_seconds]
        if survey.look_again_seconds is not None:
            waits.append(survey.look_again_seconds)
        return min(waits)

    def _keep(self, survey: Survey) -> None:
        try:
            self._surveyor.keep(survey)
        except OSError as error:
            self._notes.trouble("folder", "memory", f"cannot remember the folder: {error.strerror}")
        else:
            self._notes.over("folder", "memory")

    def _wait(self) -> None:
        """Sleep until an event or the next due time, glancing at the folder itself."""
        while not self._stopping.is_set():
            now = time.monotonic()
            due = min([self._resync_due, self._survey_due, *(at for at, _ in self._due[:1])])
            if due <= now:
                return
            try:
                event = self._events.get(timeout=min(due - now, _GLANCE_SECONDS))
            except queue.Empty:
                self._glance()
                continue
            self._take(event)
            while not self._events.empty():
                self._take(self._events.get())

    def _glance(self) -> None:
        """See what makes no event: another folder at the path, a watch that broke, a word left."""
        now = (self._folder.identity(), self._watcher.degraded)
        if now != self._glanced:
            self._glanced = now
            self._notes.watching(self._watcher.degraded)
            self._survey_due = 0.0
        elif confirmation_waits(self._home, self._folder.path):
            self._survey_due = 0.0

    def _take(self, event: _Event) -> None:
        match event:
            case _Files():
                self._survey_due = 0.0
            case _Ended(name=name):
                self._notes.ended(name)
                self._lanes.submit(name, Urgency.HEAL)
            case _Later(name=name, due=due):
                heapq.heappush(self._due, (due, name))
            case _Stop():
                pass


def _urgency(wish: Wish) -> Urgency:
    return Urgency.ADOPT if wish.known else Urgency.CREATE
