from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.confinement.facts import Fact, Verdict
from reconciler.engine import drift, journal
from reconciler.engine.home import sandbox_directory
from reconciler.engine.records import VmRecord
from tests.engine import specs


@pytest.fixture
def vm(home: Path) -> VmRecord:
    sandbox_directory(home, "web")
    return specs.vm(home)


def fact(verdict: Verdict = Verdict.DIFFERS, have: str = "off") -> Fact:
    return Fact("seccomp", "on", have, verdict)


def reasons(home: Path) -> list[str]:
    return [event["reason"] for event in journal.read_events(home, "web")]


def test_a_difference_is_told_once_and_stays_open_until_it_is_resolved(
    home: Path, vm: VmRecord
) -> None:
    for _ in range(3):
        drift.compare(home, vm, (fact(),))
    assert reasons(home) == ["Drift"]
    entry = drift.open_drifts(home, "web")["seccomp"]
    assert (entry["want"], entry["have"], entry["incarnation"]) == ("on", "off", 1)
    for _ in range(2):
        drift.compare(home, vm, (fact(Verdict.SAME),))
    assert reasons(home) == ["Drift", "DriftResolved"]
    assert drift.open_drifts(home, "web") == {}


def test_another_difference_of_the_same_promise_and_another_vm_are_told(
    home: Path, vm: VmRecord
) -> None:
    drift.compare(home, vm, (fact(),))
    drift.compare(home, vm, (fact(have="half on"),))
    drift.compare(home, replace(vm, incarnation=2), (fact(have="half on"),))
    assert reasons(home) == ["Drift"] * 3


def test_what_cannot_be_read_is_a_difference_and_what_is_not_there_is_none(
    home: Path, vm: VmRecord
) -> None:
    drift.compare(home, vm, (fact(Verdict.NOT_APPLICABLE),))
    assert reasons(home) == []
    drift.compare(home, vm, (fact(Verdict.UNREADABLE),))
    assert reasons(home) == ["Drift"]


def test_a_vmm_that_vanished_is_open_until_it_runs_again(home: Path, vm: VmRecord) -> None:
    for _ in range(2):
        drift.vanished(home, vm)
    assert reasons(home) == ["Drift"]
    assert drift.open_drifts(home, "web")["running"]["have"] == "the VMM was never seen running"
    drift.resolved(home, vm)
    assert reasons(home) == ["Drift", "DriftResolved"]


@pytest.mark.parametrize("text", ["", "[]", '{"seccomp": 5}', '{"seccomp": {}}'])
def test_a_broken_file_of_open_differences_stops_nothing(
    home: Path, vm: VmRecord, text: str
) -> None:
    (home / "sandboxes/web/drift.json").write_text(text)
    drift.compare(home, vm, (fact(),))
    assert drift.open_drifts(home, "web")["seccomp"]["have"] == "off"
    (home / "sandboxes/web/drift.json").write_text(text)
    drift.compare(home, vm, (fact(Verdict.SAME),))
    assert "seccomp" not in drift.open_drifts(home, "web")
