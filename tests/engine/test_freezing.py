"""Freezing and thawing of a process that stands for the VMM; of guests in test_vm_freeze.py."""

from __future__ import annotations

import json
import resource
import select
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.confinement.facts import Fact, Verdict
from reconciler.engine import contact, drift, freezing, journal, passes, records
from reconciler.engine.home import sandbox_directory
from reconciler.engine.outcome import Done
from reconciler.engine.records import VmRecord
from reconciler.errors import Frozen, NotRunning
from reconciler.linux import freezer, identity, sockets
from reconciler.linux.identity import ProcessIdentity
from tests.engine import specs

pytestmark = pytest.mark.root

WRONG = (Fact("seccomp", "on", "off", Verdict.DIFFERS),)


@pytest.fixture
def vm(home: Path, jailed: Callable[[str], ProcessIdentity]) -> VmRecord:
    who = jailed("web")
    sandbox_directory(home, "web")
    record = specs.vm(home, identity=who, of=specs.spec(on_drift="freeze"))
    records.keep_vm(home, record)
    return record


def stands(vm: VmRecord) -> bool:
    return freezer.is_frozen(freezing.directories(vm))


def reasons(home: Path) -> list[str]:
    return [event["reason"] for event in journal.read_events(home, "web")]


def test_it_is_noted_with_the_reason_of_the_first_time(home: Path, vm: VmRecord) -> None:
    assert freezing.frozen(home, vm) is None
    freezing.freeze(home, vm, WRONG)
    first = freezing.frozen(home, vm)
    assert first is not None
    assert (first.why, first.stands) == ("seccomp: want on, have off", True)
    freezing.freeze(home, vm, ())
    assert freezing.frozen(home, vm) == first
    freezer.thaw(freezing.directories(vm))
    again = freezing.frozen(home, vm)
    assert again is not None
    assert (again.since, again.stands) == (first.since, False)


def test_on_a_full_disk_it_is_frozen_all_the_same(home: Path, vm: VmRecord) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            freezing.freeze(home, vm, WRONG)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert stands(vm)
    assert freezing.frozen(home, vm) is None
    freezing.freeze(home, vm, WRONG)
    assert freezing.frozen(home, vm) is not None


def test_commands_are_refused_at_once(home: Path, vm: VmRecord) -> None:
    freezing.freeze(home, vm, WRONG)
    with pytest.raises(Frozen) as caught:
        contact.running(home, "web")
    assert caught.value.code == "frozen"
    assert caught.value.exit_code == 125
    assert "box thaw web" in str(caught.value)
    assert "seccomp: want on, have off" in str(caught.value)
    (vm.directory(home) / contact.FROZEN).write_text("{")
    with pytest.raises(Frozen):
        contact.running(home, "web")


def test_thawed_it_goes_on_and_its_differences_are_acknowledged(home: Path, vm: VmRecord) -> None:
    assert not freezing.thaw(home, "web")
    drift.compare(home, vm, WRONG)
    freezing.freeze(home, vm, WRONG)
    assert freezing.thaw(home, "web")
    assert not stands(vm)
    assert freezing.frozen(home, vm) is None
    assert drift.open_drifts(home, "web") == {}
    assert reasons(home) == ["Drift", "DriftAcknowledged", "Thawed"]
    assert not freezing.thaw(home, "web")
    drift.compare(home, vm, WRONG)
    assert reasons(home)[3:] == ["Drift"]


def test_a_thaw_that_was_killed_leaves_it_frozen_or_can_be_given_again(
    home: Path, vm: VmRecord
) -> None:
    freezing.freeze(home, vm, WRONG)
    freezer.thaw(freezing.directories(vm))
    # Killed here: the note is there, so the next pass freezes it and commands are refused.
    assert freezing.thaw(home, "web")
    assert freezing.frozen(home, vm) is None


def test_what_does_not_run_is_not_thawed(home: Path) -> None:
    sandbox_directory(home, "web")
    with pytest.raises(NotRunning):
        freezing.thaw(home, "web")


@pytest.mark.parametrize("how", ["down", "absent", "destroy"])
def test_a_frozen_vm_is_ended_without_being_asked(home: Path, vm: VmRecord, how: str) -> None:
    record = records.SandboxRecord("web", vm.spec, None, "", None, 1)
    records.keep_sandbox(home, record)
    freezing.freeze(home, vm, WRONG)
    (vm.directory(home) / "p0").unlink()
    with sockets.listen_private(vm.directory(home), "p0") as port:
        if how == "destroy":
            passes.destroy(home, "web", with_data=False, progress=lambda _text: None)
        else:
            wanted = specs.spec(state="stopped", on_drift="freeze") if how == "down" else None
            outcome = passes.run_pass(
                home, "web", wanted, source=None, folder=None, progress=lambda _text: None
            )
            assert isinstance(outcome, Done)
        assert not select.select([port], [], [], 0)[0], "somebody came to ask"
    assert not identity.runs(vm.identity)
    assert not vm.directory(home).exists()
    assert not any(each.exists() for each in freezing.directories(vm))


def test_a_pass_freezes_what_differs_tells_it_once_and_leaves_it_so(
    home: Path, vm: VmRecord
) -> None:
    # Without a policy in its directory nothing of the process can be judged: all of it differs.
    record = records.SandboxRecord("web", vm.spec, None, "", None, 1)
    records.keep_sandbox(home, record)
    for number in range(3):
        outcome = passes.run_pass(
            home, "web", vm.spec, source=None, folder=None, progress=lambda _text: None
        )
        assert isinstance(outcome, Done), outcome
        assert [each.kind.value for each in outcome.actions] == (["freeze"] if not number else [])
        assert stands(vm)
    found = reasons(home)
    assert found.count("Frozen") == 1
    assert found.count("Drift") == len(drift.open_drifts(home, "web"))
    event = next(each for each in journal.read_events(home) if each["reason"] == "Frozen")
    assert event["type"] == "Warning"
    assert vm.identity is not None
    assert (event["pid"], event["vm"], event["incarnation"]) == (vm.identity.pid, "web", 1)
    assert {each["promise"] for each in event["differences"]} == drift.open_drifts(
        home, "web"
    ).keys()
    assert json.dumps(event["differences"]).count("cannot be read") == len(event["differences"])
