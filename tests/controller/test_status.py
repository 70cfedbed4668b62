from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.confinement.facts import Fact, Verdict
from reconciler.controller.backoff import Backoff
from reconciler.controller.conditions import Condition, generation, since
from reconciler.controller.desired import Order, Wish
from reconciler.controller.status import (
    SandboxStatus,
    keep_status,
    load_status,
    status_after_try,
    status_of_look,
)
from reconciler.engine import contact
from reconciler.engine.freezing import Frozen
from reconciler.engine.home import open_home, sandbox_directory
from reconciler.engine.observe import Observation
from reconciler.engine.outcome import Again, Done, GaveUp
from reconciler.errors import BoxError
from tests.engine.specs import RECORD, SPEC, spec

ACCEPTED = Condition("Accepted", "True", "Valid")
WISH = Wish("web", Order.HOLD_TO, (ACCEPTED,), SPEC)
UP = Observation("web", RECORD, None, running=True, built=True)
DOWN = replace(UP, running=False)
SAME = Fact("uid", "1", "1", Verdict.SAME)


def words(status: SandboxStatus) -> dict[str, str]:
    return {each.type: f"{each.status} {each.reason}" for each in status.conditions}


def test_all_is_well() -> None:
    assert words(status_after_try(WISH, replace(UP, facts=(SAME,)), Done())) == {
        "Accepted": "True Valid",
        "Built": "True Built",
        "Running": "True Running",
        "Confined": "True AsPromised",
        "Ready": "True Converged",
    }


@pytest.mark.parametrize(
    ("verdict", "reason"), [(Verdict.DIFFERS, "Differs"), (Verdict.UNREADABLE, "Unreadable")]
)
def test_a_fact_that_is_not_so(verdict: Verdict, reason: str) -> None:
    seen = replace(UP, facts=(SAME, Fact("seccomp", "2", "0", verdict)))
    found = words(status_after_try(WISH, seen, Done()))
    assert found["Confined"] == f"False {reason}"
    assert found["Ready"] == "False NotConfined"


@pytest.mark.parametrize(("stands", "frozen"), [(True, "True"), (False, "False")])
def test_a_frozen_vm_is_told_with_its_reason_and_the_way_out(*, stands: bool, frozen: str) -> None:
    note = Frozen(
        "2026-01-02T03:04:05.678Z", "seccomp: want 2, have 0", contact.DIFFERED, stands=stands
    )
    seen = replace(UP, facts=(Fact("seccomp", "2", "0", Verdict.DIFFERS),), frozen=note)
    status = status_after_try(WISH, seen, Done())
    condition = status.condition("Frozen")
    assert condition is not None
    assert condition.status == frozen
    for part in (note.since, note.why, "box thaw web"):
        assert part in condition.message
    assert words(status)["Ready"] == "False Frozen"
    assert status_after_try(WISH, replace(seen, frozen=None), Done()).condition("Frozen") is None


def test_one_whose_vmm_somebody_stopped_is_not_ready_and_says_what_to_do() -> None:
    status = status_after_try(WISH, replace(UP, facts=(SAME,), stopped=4321), Done())
    assert words(status)["Ready"] == "False Halted"
    ready = status.condition("Ready")
    assert ready is not None
    assert "`sudo kill -CONT 4321`" in ready.message


@pytest.mark.parametrize("on_drift", ["freeze", "stop"])
def test_what_was_ended_for_drift_says_how_it_starts_again(on_drift: str) -> None:
    wish = replace(WISH, spec=spec(on_drift=on_drift))
    status = status_after_try(wish, replace(DOWN, drifts=("seccomp",)), Done())
    running = status.condition("Running")
    assert running is not None
    assert running.reason == "StoppedForDrift"
    assert "box up web" in running.message
    assert words(status)["Ready"] == "False StoppedForDrift"


@pytest.mark.parametrize(
    ("state", "seen", "ready"),
    [
        ("running", DOWN, "False Converging"),
        ("stopped", DOWN, "True Converged"),
        ("stopped", UP, "False Converging"),
        ("built", DOWN, "True Converged"),
        ("built", replace(DOWN, built=False), "False Converging"),
    ],
)
def test_ready_is_as_declared(state: str, seen: Observation, ready: str) -> None:
    wish = replace(WISH, spec=spec(state=state))
    assert words(status_after_try(wish, seen, Done()))["Ready"] == ready


def test_a_bad_file_is_not_ready_though_all_runs() -> None:
    wish = replace(WISH, conditions=(Condition("Accepted", "False", "InvalidSpec", "line 1"),))
    found = words(status_after_try(wish, UP, Done()))
    assert found["Ready"] == "False InvalidSpec"
    assert found["Running"] == "True Running"


def test_failures_are_told_with_their_reason() -> None:
    again = status_after_try(WISH, DOWN, Again(1, BoxError("no room")))
    assert again.condition("Ready") == Condition("Ready", "False", "Retrying", "no room")
    gave_up = status_after_try(WISH, DOWN, GaveUp(BoxError("no kernel")))
    assert words(gave_up)["Ready"] == "False GaveUp"
    stalled = status_after_try(WISH, DOWN, Again(1, BoxError("x")), Backoff(level=6))
    assert words(stalled)["Stalled"] == "True TooManyFailures"


def test_times_change_only_with_the_status() -> None:
    old = since([ACCEPTED, Condition("Ready", "False", "Retrying")], [], now="1", spec=SPEC)
    new = since([ACCEPTED, Condition("Ready", "True", "Converged")], old, now="2", spec=SPEC)
    assert [each.last_transition_time for each in new] == ["1", "2"]
    assert {each.observed_generation for each in new} == {generation(SPEC)}
    worse = since([Condition("Ready", "True", "Other", "x")], new, now="3", spec=SPEC)
    assert worse[0].last_transition_time == "2"
    assert worse[0].message == "x"


def test_a_look_does_not_forget_why_the_last_try_failed() -> None:
    tried = status_after_try(WISH, DOWN, Again(1, BoxError("no room")), Backoff(level=6))
    looked = status_of_look(WISH, DOWN, tried)
    assert words(looked)["Ready"] == "False Retrying"
    assert words(looked)["Stalled"] == "True TooManyFailures"
    assert words(status_of_look(WISH, UP, tried))["Ready"] == "True Converged"
    other = replace(WISH, spec=spec(cpus=4))
    assert words(status_of_look(other, DOWN, tried))["Ready"] == "False Converging"


class TestKept:
    @pytest.fixture
    def home(self, box_home: Path) -> Path:
        home = open_home()
        assert home == box_home
        return home

    def test_it_can_be_read_again(self, home: Path) -> None:
        sandbox_directory(home, "web")
        assert keep_status(home, status_after_try(WISH, UP, Done()), SPEC) is None
        kept = load_status(home, "web")
        assert words(kept) == words(status_after_try(WISH, UP, Done()))
        assert kept.generation == generation(SPEC)
        assert all(each.last_transition_time.endswith("Z") for each in kept.conditions)

    def test_the_same_again_is_not_written(self, home: Path) -> None:
        path = sandbox_directory(home, "web") / "status.json"
        keep_status(home, status_after_try(WISH, UP, Done()), SPEC)
        before = path.stat().st_ino
        keep_status(home, status_after_try(WISH, UP, Done()), SPEC)
        assert path.stat().st_ino == before

    def test_no_directory_is_made_for_it(self, home: Path) -> None:
        assert keep_status(home, status_after_try(WISH, UP, Done()), SPEC) is None
        assert not (home / "sandboxes" / "web").exists()

    @pytest.mark.parametrize(
        "text", ["", "[]", "{}", '{"generation": "x", "conditions": [{"type": "A"}]}', "\xff"]
    )
    def test_a_broken_file_says_nothing(self, home: Path, text: str) -> None:
        (sandbox_directory(home, "web") / "status.json").write_text(text)
        assert load_status(home, "web") == SandboxStatus("web")

    def test_what_cannot_be_kept_is_an_answer_not_an_exception(self, home: Path) -> None:
        (sandbox_directory(home, "web") / "status.json").mkdir()
        error = keep_status(home, status_after_try(WISH, UP, Done()), SPEC)
        assert isinstance(error, OSError)
