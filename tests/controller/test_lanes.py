from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from reconciler.controller.lanes import THREADS, Job, Lane, Lanes, Urgency
from tests.controller.sleepers import until


class Work:
    """Counts looks; a name of `jobs` takes a job there, which waits for `go`."""

    def __init__(self) -> None:
        self.looks: list[str] = []
        self.ran: list[str] = []
        self.failures: list[tuple[str, BaseException]] = []
        self.jobs: dict[str, Job] = {}
        self.go = threading.Event()
        self.wait_for_go: set[str] = set()

    def look(self, name: str) -> Job | None:
        self.looks.append(name)
        if name == "broken":
            raise ValueError(name)
        if name in self.wait_for_go:
            self.go.wait(10)
        return self.jobs.get(name)

    def job(self, lane: Lane, name: str, urgency: Urgency = Urgency.CREATE) -> None:
        def run() -> None:
            self.go.wait(10)
            self.ran.append(name)

        self.jobs[name] = Job(lane, urgency, run)


@contextmanager
def at_work(work: Work) -> Iterator[Lanes]:
    lanes = Lanes(work.look, lambda name, error: work.failures.append((name, error)))
    lanes.start()
    try:
        yield lanes
    finally:
        work.go.set()
        assert not lanes.stop(10)


def test_slow_builds_delay_no_start_and_no_look() -> None:
    """E8"""
    work = Work()
    for number in range(THREADS[Lane.BUILD] + 3):
        work.job(Lane.BUILD, f"build-{number}")
    with at_work(work) as lanes:
        for name in work.jobs:
            lanes.submit(name)
        lanes.submit("quick")
        until(lambda: "quick" in work.looks and "quick" not in lanes.busy())
        assert len(lanes.busy()) == len(work.jobs)
        work.go.set()
        until(lambda: not lanes.busy())
    assert sorted(work.ran) == sorted(work.jobs)


def test_one_pass_a_name_and_one_more_for_any_number_of_wishes() -> None:
    """A15"""
    work = Work()
    work.wait_for_go = {"web"}
    with at_work(work) as lanes:
        lanes.submit("web")
        until(lambda: work.looks == ["web"])
        for _ in range(500):
            lanes.submit("web")
        work.go.set()
        until(lambda: not lanes.busy())
    assert work.looks == ["web", "web"]


def test_more_urgent_jobs_go_first() -> None:
    """E9"""
    work = Work()
    threads = THREADS[Lane.BUILD]
    for number in range(threads):
        work.job(Lane.BUILD, f"first-{number}")
    with at_work(work) as lanes:
        for number in range(threads):
            lanes.submit(f"first-{number}")
        until(lambda: len(work.looks) == threads)
        order = {"new": Urgency.CREATE, "heal": Urgency.HEAL, "gone": Urgency.DELETE}
        for name, urgency in order.items():
            work.job(Lane.BUILD, name, urgency)
            lanes.submit(name)
            until(lambda name=name: name in work.looks)  # type: ignore[misc]
        until(lambda: len(work.looks) == threads + 3)
        work.go.set()
        until(lambda: not lanes.busy())
    later = [name for name in work.ran if name in order]
    assert later.index("new") == 2


def test_a_mistake_ends_one_pass_and_no_worker() -> None:
    work = Work()
    with at_work(work) as lanes:
        for _ in range(3 * THREADS[Lane.LOOK]):
            lanes.submit("broken")
            until(lambda: not lanes.busy())
        lanes.submit("web")
        until(lambda: "web" in work.looks)
    assert {name for name, _ in work.failures} == {"broken"}


def test_stopping_waits_for_what_runs_and_begins_nothing() -> None:
    work = Work()
    threads = THREADS[Lane.BUILD]
    for number in range(threads + 2):
        work.job(Lane.BUILD, f"b{number}")
    with at_work(work) as lanes:
        for name in work.jobs:
            lanes.submit(name)
            until(lambda name=name: name in work.looks)  # type: ignore[misc]
        assert len(lanes.stop(0.1)) == threads
        lanes.submit("late")
        work.go.set()
    assert "late" not in work.looks
    assert len(work.ran) == threads
