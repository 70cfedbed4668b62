"""The loop: who waits, for whom and how long; what must not stop it; how it ends."""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.confinement.facts import Fact, Verdict
from reconciler.controller.backoff import load_backoff, save_backoff
from reconciler.controller.status import load_status
from reconciler.engine.journal import read_events
from reconciler.engine.outcome import Again, GaveUp
from reconciler.errors import BoxError, Busy, Refused
from tests.controller.sleepers import GOOD, Sleepers, put, settle, sleepers, until
from tests.controller.watching import running, watching


class TestWaiting:
    """Who waits for whom, and for how long."""

    def test_a_slow_build_delays_nobody(self, engine: Sleepers, folder: Path) -> None:
        """E8"""
        for number in range(3):
            engine.unbuilt.add(f"slow-{number}")
            engine.holding[f"slow-{number}"] = threading.Event()
            put(folder / f"slow-{number}.Boxfile")
        with watching(engine, folder):
            until(lambda: len(engine.begun) >= 2, "two builds")
            put(folder / "quick.Boxfile")
            running(engine, "quick")
            for held in engine.holding.values():
                held.set()
            running(engine, *engine.holding)

    def test_the_newest_spec_wins(self, engine: Sleepers, folder: Path) -> None:
        engine.holding["web"] = threading.Event()
        path = put(folder / "web.Boxfile")
        with watching(engine, folder):
            until(lambda: engine.begun)
            for cpus in (2, 3, 4):
                put(path, f"{GOOD}cpus: {cpus}\n")
                time.sleep(0.2)
            engine.holding["web"].set()
            until(lambda: getattr(engine.record("web"), "spec", None) is not None)
            until(lambda: [ran.spec.cpus for ran in engine.passes if ran.spec][-1] == 4)
            assert {ran.spec.cpus for ran in engine.passes if ran.spec} == {2, 4}

    def test_a_failure_backs_off_and_a_new_spec_does_not_wait(
        self, engine: Sleepers, folder: Path
    ) -> None:
        engine.outcomes["web"] = [Again(0, BoxError("no room"))]
        path = put(folder / "web.Boxfile")
        put(folder / "ok.Boxfile")
        with watching(engine, folder, resync_seconds=0.3) as controller:
            running(engine, "ok")
            time.sleep(1)
            assert engine.count("web") == 1
            assert controller.log.getvalue().count("no room") == 1
            put(path, GOOD + "cpus: 3\n")
            running(engine, "web")

    def test_it_still_waits_after_a_restart(self, engine: Sleepers, folder: Path) -> None:
        """E5"""
        put(folder / "web.Boxfile", GOOD + "state: stopped\n")
        with watching(engine, folder):
            until(lambda: engine.names())
        engine.outcomes["web"] = [Again(0, BoxError("no room"))]
        settle(put(folder / "web.Boxfile"))
        with watching(engine, folder):
            until(lambda: load_backoff(engine.home, "web").level == 1)
        passes = engine.count("web")
        with watching(engine, folder, resync_seconds=0.3):
            time.sleep(1)
            assert engine.count("web") == passes

    def test_given_up_until_the_file_is_touched(self, engine: Sleepers, folder: Path) -> None:
        engine.outcomes["web"] = [GaveUp(Refused("not with this kernel"))]
        path = put(folder / "web.Boxfile")
        with watching(engine, folder, resync_seconds=0.3) as controller:
            until(lambda: "not with this kernel" in controller.log.getvalue())
            time.sleep(1)
            assert engine.count("web") == 1
            path.touch()
            running(engine, "web")

    @pytest.mark.parametrize(("on_drift", "answer"), [("stop", "stop"), ("freeze", "freeze")])
    def test_what_was_given_up_is_answered_all_the_same_when_it_differs(
        self, engine: Sleepers, folder: Path, on_drift: str, answer: str
    ) -> None:
        text = GOOD + f"on_drift: {on_drift}\n"
        path = put(folder / "web.Boxfile", text)
        with watching(engine, folder, resync_seconds=0.3) as controller:
            running(engine, "web")
            engine.outcomes["web"] = [GaveUp(Refused("not with this kernel"))]
            put(path, text + "cpus: 3\n")
            until(lambda: "not with this kernel" in controller.log.getvalue())
            engine.differs["web"] = (Fact("seccomp", "on", "off", Verdict.DIFFERS),)
            until(lambda: answer in engine.kinds("web"))
            assert "replace" not in engine.kinds("web")

    def test_busy_is_no_failure(self, engine: Sleepers, folder: Path) -> None:
        engine.outcomes["web"] = [Again(0.2, Busy("somebody else")) for _ in range(3)]
        put(folder / "web.Boxfile")
        with watching(engine, folder):
            running(engine, "web")
            assert load_backoff(engine.home, "web").level == 0

    def test_a_failing_sandbox_stalls_in_sight(self, engine: Sleepers, folder: Path) -> None:
        """D6, E6: five failures behind it, the next one is the sixth."""
        path = put(folder / "web.Boxfile", GOOD + "state: stopped\n")
        with watching(engine, folder):
            until(lambda: engine.names())
        engine.outcomes["web"] = [Again(0, BoxError("no room"))]
        settle(put(path))
        with watching(engine, folder):
            until(lambda: load_backoff(engine.home, "web").level == 1)
        kept = load_backoff(engine.home, "web")
        save_backoff(engine.home, "web", replace(kept, level=5, not_before=0.0))
        engine.outcomes["web"] = [Again(0, BoxError("no room"))]
        with watching(engine, folder) as controller:
            until(lambda: load_status(engine.home, "web").condition("Stalled"))
            assert controller.log.getvalue().count("stalled") == 1
        ready = load_status(engine.home, "web").condition("Ready")
        assert ready
        assert (ready.status, ready.reason) == ("False", "Retrying")
        events = [event["reason"] for event in read_events(engine.home, "web")]
        assert events.count("Stalled") == 1

    @pytest.mark.slow
    def test_idle_it_does_nothing(self, engine: Sleepers, folder: Path) -> None:
        """A5, A6: its own work does not wake it, nor does git's."""
        subprocess.run(["git", "init", "-q", folder], check=True)
        put(folder / "web.Boxfile")
        with watching(engine, folder):
            running(engine, "web")
            passes = -1
            while passes != engine.count("web"):
                passes = engine.count("web")
                time.sleep(0.5)
            for _ in range(5):
                subprocess.run(["git", "-C", folder, "status"], check=True, capture_output=True)
            time.sleep(1.5)
            assert engine.count("web") == passes

    def test_every_resync_looks_at_all(self, engine: Sleepers, folder: Path) -> None:
        put(folder / "web.Boxfile")
        with watching(engine, folder, resync_seconds=0.2):
            until(lambda: engine.count("web") >= 4)
            assert engine.kinds("web") == ["update", "start"]


class TestTrouble:
    """E10, E13: what must not stop it."""

    def test_one_bad_file_is_told_once(self, engine: Sleepers, folder: Path) -> None:
        put(folder / "bad.Boxfile", "{")
        with watching(engine, folder, resync_seconds=0.1) as controller:
            time.sleep(1.5)
            assert controller.log.getvalue().count("InvalidSpec") == 1

    def test_a_home_that_cannot_be_written(self, engine: Sleepers, folder: Path) -> None:
        path = put(folder / "web.Boxfile")
        with watching(engine, folder):
            running(engine, "web")
        status = engine.home / "sandboxes" / "web" / "status.json"
        backoff = engine.home / "sandboxes" / "web" / "backoff.json"
        for file in (status, backoff):
            file.unlink(missing_ok=True)
            file.mkdir()
        with watching(engine, folder) as controller:
            put(path, GOOD + "cpus: 3\n")
            until(lambda: "replace" in engine.kinds("web"))
            until(lambda: "cannot keep its status" in controller.log.getvalue())
        assert "a directory lies in the way" in controller.log.getvalue()

    def test_a_broken_record_is_told_and_the_rest_goes_on(
        self, engine: Sleepers, folder: Path
    ) -> None:
        put(folder / "a.Boxfile")
        put(folder / "b.Boxfile")
        with watching(engine, folder):
            running(engine, "a", "b")
        (engine.home / "sandboxes" / "a" / "record.json").write_text("{")
        with watching(engine, folder) as controller:
            put(folder / "b.Boxfile", GOOD + "cpus: 3\n")
            until(lambda: "replace" in engine.kinds("b"))
            assert "BrokenRecord" in controller.log.getvalue()


class TestStopping:
    def test_it_ends_at_once_when_idle(self, engine: Sleepers, folder: Path) -> None:
        put(folder / "web.Boxfile")
        with watching(engine, folder) as controller:
            running(engine, "web")
            until(lambda: load_status(engine.home, "web").condition("Ready"))
            controller.loop.stop()
            controller.thread.join(30)
            assert not controller.thread.is_alive()
        assert engine.pid("web")

    def test_what_is_begun_is_unwound(self, engine: Sleepers, folder: Path) -> None:
        engine.holding["web"] = threading.Event()
        put(folder / "web.Boxfile")
        with watching(engine, folder) as controller:
            until(lambda: engine.begun)
            controller.loop.stop()
            controller.thread.join(30)
            assert not controller.thread.is_alive()
        assert engine.pid("web") is None


@pytest.mark.parametrize("count", [30])
def test_many_cold_starts(box_home: Path, folder: Path, count: int) -> None:
    """E9"""
    names = [f"s{number}" for number in range(count)]
    for name in names:
        put(folder / f"{name}.Boxfile")
    assert box_home.is_dir()
    with sleepers() as engine, watching(engine, folder):
        until(lambda: len([a for a in engine.done if a.kind == "start"]) == count, "all starts")
        assert {engine.count(name) for name in names} <= {1, 2}
