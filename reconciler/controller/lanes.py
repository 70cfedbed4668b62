"""Worker threads: one pass a sandbox at a time, and slow kinds of work in lanes of their own.

A name that is submitted again while it is worked on is worked on once more afterwards, however
often it was submitted.
"""

from __future__ import annotations

import itertools
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Lane(StrEnum):
    """What the threads of a lane do: builds never hold up starts, starts never hold up a look."""

    LOOK = "look"
    STOP = "stop"
    START = "start"
    BUILD = "build"


class Urgency(IntEnum):
    """Who is served first within a lane."""

    ADOPT = 0
    DELETE = 1
    HEAL = 2
    CREATE = 3


THREADS = {
    Lane.LOOK: 4,
    Lane.STOP: 4,
    Lane.START: max(2, min(4, os.cpu_count() or 1)),
    Lane.BUILD: 2,
}
_LAST = 99


@dataclass(frozen=True)
class Job:
    """The rest of a pass, for another lane."""

    lane: Lane
    urgency: Urgency
    run: Callable[[], None]


@dataclass(order=True)
class _Queued:
    urgency: int
    number: int
    name: str
    run: Callable[[], Job | None]


class Lanes:
    """`look` is called with each submitted name and may return the job that it takes.

    `failed` is told of any exception: a mistake in one pass ends that pass and no worker.
    """

    def __init__(
        self,
        look: Callable[[str], Job | None],
        failed: Callable[[str, BaseException], None],
    ) -> None:
        self._look = look
        self._failed = failed
        self._numbers = itertools.count()
        self._queues: dict[Lane, queue.PriorityQueue[_Queued]] = {
            lane: queue.PriorityQueue() for lane in Lane
        }
        self._changed = threading.Condition()
        self._in_flight: dict[str, bool] = {}
        self._stopping = False

    def start(self) -> None:
        """Start the threads. Daemons: a build that does not end must not keep us from exiting."""
        for lane, count in THREADS.items():
            for number in range(count):
                threading.Thread(
                    target=self._work, args=(lane,), name=f"{lane}-{number}", daemon=True
                ).start()

    def submit(self, name: str, urgency: Urgency = Urgency.ADOPT) -> None:
        """Have `name` looked at, once more if that is under way."""
        with self._changed:
            if self._stopping:
                return
            if name in self._in_flight:
                self._in_flight[name] = True
                return
            self._in_flight[name] = False
        self._put(Lane.LOOK, urgency, name, lambda: self._look(name))

    def busy(self) -> frozenset[str]:
        """The names being worked on or waiting for it."""
        with self._changed:
            return frozenset(self._in_flight)

    def stop(self, timeout_seconds: float) -> frozenset[str]:
        """Begin nothing more, and wait for what is under way; the names that did not end."""
        with self._changed:
            self._stopping = True
            for name in self._waiting():
                self._in_flight.pop(name, None)
            self._changed.wait_for(lambda: not self._in_flight, timeout_seconds)
            return frozenset(self._in_flight)

    def _waiting(self) -> list[str]:
        names = []
        for waiting in self._queues.values():
            while not waiting.empty():
                names.append(waiting.get_nowait().name)
        for lane, count in THREADS.items():
            for _ in range(count):
                self._put(lane, _LAST, "", lambda: None)
        return names

    def _put(self, lane: Lane, urgency: int, name: str, run: Callable[[], Job | None]) -> None:
        self._queues[lane].put(_Queued(urgency, next(self._numbers), name, run))

    def _work(self, lane: Lane) -> None:
        while (item := self._queues[lane].get()).name:
            job: Job | None = None
            try:
                job = item.run()
            except BaseException as error:  # noqa: BLE001  # see the class: told, and gone on
                self._failed(item.name, error)
            if job is not None and self._passed_on(item.name, job):
                continue
            self._finished(item.name)

    def _passed_on(self, name: str, job: Job) -> bool:
        with self._changed:
            if self._stopping:
                return False
            run = job.run
            self._put(job.lane, job.urgency, name, lambda: run())
            return True

    def _finished(self, name: str) -> None:
        with self._changed:
            again = self._in_flight.pop(name, False)
            self._changed.notify_all()
        if again:
            self.submit(name)
