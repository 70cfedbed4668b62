from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.confinement.facts import Fact, Verdict
from reconciler.engine.contact import DIFFERED, NO_SPACE
from reconciler.engine.freezing import Frozen
from reconciler.engine.observe import Observation, Waiting
from reconciler.engine.plan import ActionKind, differences, plan
from reconciler.engine.records import WARM, SandboxRecord
from reconciler.engine.spec import Spec
from reconciler.errors import Refused
from tests.engine import specs
from tests.engine.specs import RECORD, SPEC, spec

HOME = Path("/home")
NOTHING = Observation("web", None, None, running=False, built=False)
DOWN = replace(NOTHING, record=RECORD)
UP = replace(DOWN, vm=specs.vm(HOME), running=True)
HALF = replace(DOWN, vm=specs.vm(HOME), running=False)


def recorded(of: Spec) -> SandboxRecord:
    return replace(RECORD, spec=of)


def kinds(wanted: Spec | None, seen: Observation) -> list[str]:
    actions = plan(wanted, seen)
    assert all(each.reason and each.sandbox == "web" for each in actions)
    return [each.kind.value for each in actions]


@pytest.mark.parametrize(
    ("wanted", "seen", "expected"),
    [
        (SPEC, NOTHING, ["update", "start"]),
        (SPEC, DOWN, ["start"]),
        (SPEC, HALF, ["start"]),
        (SPEC, UP, []),
        (spec(cpus=2), UP, ["update", "replace"]),
        (spec(timeout_seconds=9), UP, ["update"]),
        (spec(state="stopped"), UP, ["stop", "update"]),
        (spec(state="stopped"), NOTHING, ["update"]),
        (None, UP, ["destroy"]),
        (None, HALF, ["destroy"]),
        (None, DOWN, ["destroy"]),
        (None, NOTHING, []),
    ],
)
def test_what_is_planned(wanted: Spec | None, seen: Observation, expected: list[str]) -> None:
    assert kinds(wanted, seen) == expected


@pytest.mark.parametrize("state", ["stopped", "built"])
def test_what_a_killed_start_has_left_is_stopped_too(state: str) -> None:
    wanted = spec(state=state)
    seen = replace(HALF, record=recorded(wanted), built=True)
    (action,) = plan(wanted, seen)
    assert action.kind is ActionKind.STOP
    assert "left" in action.reason
    assert plan(wanted, replace(seen, vm=None)) == ()


def test_built_is_built_once() -> None:
    wanted = spec(state="built")
    seen = replace(DOWN, record=recorded(wanted))
    assert kinds(wanted, seen) == ["build"]
    assert kinds(wanted, replace(seen, built=True)) == []


def test_what_was_built_for_another_machine_is_built_anew() -> None:
    seen = replace(DOWN, record=recorded(spec(state="built")), built=True)
    assert kinds(spec(state="built", cpus=2), seen) == ["update", "build"]
    assert kinds(spec(state="built", timeout_seconds=9), seen) == ["update"]


def test_a_vm_without_a_record_of_its_sandbox_is_an_absence_too() -> None:
    assert kinds(None, replace(UP, record=None)) == ["destroy"]


def test_a_protected_sandbox_outlives_its_boxfile() -> None:
    seen = replace(UP, record=recorded(spec(protect=True)))
    assert kinds(None, seen) == []


def test_what_was_left_behind_is_reaped_first_in_every_case() -> None:
    stray = specs.vm(HOME, "web.12345678")
    for wanted in (SPEC, None):
        for seen in (NOTHING, DOWN, UP):
            with_strays = replace(seen, strays=(stray,), broken=("web.abcdef01",))
            found = plan(wanted, with_strays)
            assert [each.kind for each in found[:2]] == [ActionKind.REAP, ActionKind.REAP]
            assert "web.12345678" in found[0].reason
            assert "web.abcdef01" in found[1].reason
            assert found[2:] == plan(wanted, seen)


WRONG = Fact("seccomp", "on", "off", Verdict.DIFFERS)
FINE = Fact("seccomp", "on", "on", Verdict.SAME)
STANDS = Frozen("2026-01-01T00:00:00.000Z", "seccomp: want on, have off", DIFFERED, stands=True)


@pytest.mark.parametrize("changes", [{}, {"cpus": 2}], ids=["as-declared", "outdated"])
@pytest.mark.parametrize(
    ("on_drift", "fact", "expected"),
    [
        ("stop", WRONG, "stop"),
        ("freeze", WRONG, "freeze"),
        ("alert", WRONG, ""),
        ("stop", FINE, ""),
        ("freeze", FINE, ""),
    ],
)
def test_drift_is_answered_as_declared_and_before_anything_else(
    on_drift: str, fact: Fact, expected: str, changes: dict[str, object]
) -> None:
    wanted = spec(on_drift=on_drift, **changes)
    seen = replace(UP, record=recorded(wanted), facts=(fact,))
    other = ["replace"] if changes else []
    assert kinds(wanted, seen) == ([expected] if expected else other)
    if expected:
        (action,) = plan(wanted, seen)
        assert "seccomp: want on, have off" in action.reason
        assert action.differences == (WRONG,)


@pytest.mark.parametrize(
    ("on_drift", "expected"), [("stop", []), ("freeze", []), ("alert", ["start"])]
)
def test_what_was_ended_for_drift_is_started_by_nobody_else(
    on_drift: str, expected: list[str]
) -> None:
    wanted = spec(on_drift=on_drift)
    seen = replace(NOTHING, record=recorded(wanted), drifts=("seccomp",))
    assert kinds(wanted, seen) == expected
    # A frozen VM whose VMM was killed has left its record.
    assert kinds(wanted, replace(seen, vm=specs.vm(HOME))) == expected


@pytest.mark.parametrize("on_drift", ["alert", "freeze", "stop"])
def test_a_frozen_vm_is_not_replaced_healed_or_answered_again(on_drift: str) -> None:
    for changed in (SPEC, spec(cpus=2), spec(data_size="32M")):
        wanted = replace(changed, on_drift=on_drift)
        seen = replace(UP, record=recorded(wanted), data_bytes=16 << 20, frozen=STANDS)
        goes_on = replace(seen, frozen=replace(STANDS, stands=False))
        for fact in (FINE, WRONG):
            assert kinds(wanted, replace(seen, facts=(fact,))) == []
            assert kinds(wanted, replace(goes_on, facts=(fact,))) == ["freeze"]


@pytest.mark.parametrize("stands", [True, False])
def test_a_paused_vm_is_left_to_who_paused_it_unless_it_differs(stands: bool) -> None:  # noqa: FBT001
    paused = replace(STANDS, reason=NO_SPACE, stands=stands)
    for changed in (SPEC, spec(cpus=2)):
        for on_drift, answer in (("alert", []), ("freeze", ["freeze"]), ("stop", ["stop"])):
            wanted = replace(changed, on_drift=on_drift)
            seen = replace(UP, record=recorded(wanted), data_bytes=16 << 20, frozen=paused)
            assert kinds(wanted, replace(seen, facts=(FINE,))) == []
            assert kinds(wanted, replace(seen, facts=(WRONG,))) == answer


def test_a_frozen_vm_is_ended_where_no_vm_is_declared() -> None:
    frozen = replace(UP, frozen=STANDS)
    assert kinds(spec(state="stopped"), frozen) == ["stop", "update"]
    assert kinds(None, frozen) == ["destroy"]


def test_a_waiting_vm_that_differs_is_drained_and_the_action_names_what_differs() -> None:
    vm = replace(specs.vm(HOME, "web.12345678"), kind=WARM, ready=True)
    waiting = Waiting(vm, "confinement differs: seccomp: want on, have off", (WRONG,))
    wanted = spec(warm=1)
    seen = replace(UP, record=recorded(wanted), waiting=(waiting,))
    drain = next(each for each in plan(wanted, seen) if each.kind is ActionKind.DRAIN)
    assert drain.differences == (WRONG,)
    assert drain.vm == vm.vm
    assert "web.12345678: confinement differs: seccomp: want on, have off" in drain.reason


def test_differences_name_fields_but_no_values_of_env() -> None:
    other = spec(cpus=2, env=(("TOKEN", "secret"),))
    found = [str(change) for change in differences(SPEC, other)]
    assert found == ["cpus 1→2 (restart)", "env +TOKEN -EDITOR (live)"]
    assert "secret" not in plan(other, UP)[0].reason


def test_a_disk_that_cannot_change_stops_nothing_and_starts_nothing() -> None:
    other = spec(data_size="32M")
    for seen in (replace(UP, data_bytes=16 << 20), replace(DOWN, data_bytes=16 << 20)):
        with pytest.raises(Refused, match="asks for 33554432"):
            plan(other, seen)
        assert plan(SPEC, seen) == plan(SPEC, replace(seen, data_bytes=None))
    assert kinds(spec(data_size="32M", state="stopped"), replace(UP, data_bytes=16 << 20)) == [
        "stop",
        "update",
    ]


def test_a_vm_less_confined_is_stopped_although_its_disk_cannot_change() -> None:
    wrong = Fact("seccomp", "on", "off", Verdict.DIFFERS)
    seen = replace(UP, data_bytes=16 << 20, facts=(wrong,))
    assert kinds(spec(data_size="32M"), seen) == ["update", "stop"]


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        (spec(isolation="strict"), spec(isolation="standard"), "isolation"),
        (spec(network="none"), spec(network="bridge"), "network"),
        (spec(readonly=True), spec(readonly=False), "readonly"),
        (spec(on_drift="stop"), spec(on_drift="alert"), "on_drift"),
    ],
)
def test_only_more_reach_is_widening(before: Spec, after: Spec, field: str) -> None:
    assert [change.field for change in differences(before, after)] == [field]
    assert [change.widening for change in differences(before, after)] == [True]
    assert [change.widening for change in differences(after, before)] == [False]
    assert differences(before, before) == ()
    assert plan(after, replace(UP, record=recorded(before)))[0].widening == (field,)
