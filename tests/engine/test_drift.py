from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.confinement.facts import Fact, Verdict
from reconciler.engine import drift, journal
from reconciler.engine.home import sandbox_directory
from reconciler.engine.records import VmRecord
from reconciler.linux.identity import ProcessIdentity
from tests.engine import specs

REPO = Path(drift.__file__).parents[2]


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


def test_processes_and_threads_that_take_turns_are_one_difference(home: Path, vm: VmRecord) -> None:
    """Of short-lived ones each pass sees another; no pass may fill the journal with that."""
    for have in (
        "PID 7 thread 7: off",
        "PID 8 thread 8: off; PID 8 thread 9: off",
        "PID 7 thread 10: off",
    ):
        drift.compare(home, vm, (fact(have=have),))
    assert reasons(home) == ["Drift"]
    assert drift.open_drifts(home, "web")["seccomp"]["have"] == "PID 7 thread 7: off"
    drift.compare(home, vm, (fact(have="PID 7 thread 7: off; PID 7: half on"),))
    assert reasons(home) == ["Drift"] * 2


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


def records(home: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((home / "sandboxes/web/drift.json").read_text())
    return value


def test_record_and_event_name_the_vm_and_its_process(home: Path, vm: VmRecord) -> None:
    who = ProcessIdentity(77, 12345, "boot", None, None)
    drift.compare(home, replace(vm, identity=who, incarnation=4), (fact(),))
    expected = {"want": "on", "have": "off", "incarnation": 4, "pid": 77, "start_time_ticks": 12345}
    (event,) = journal.read_events(home, "web")
    for found in (drift.open_drifts(home, "web")["seccomp"], event):
        assert {key: found[key] for key in expected} == expected
        assert found["since"]
    assert event["promise"] == "seccomp"


def test_what_was_acknowledged_is_told_once_and_opened_again_if_it_is_still_so(
    home: Path, vm: VmRecord
) -> None:
    drift.compare(home, vm, (fact(),))
    for _ in range(2):
        drift.acknowledge(home, "web")
    assert drift.open_drifts(home, "web") == {}
    drift.compare(home, vm, (fact(),))
    assert reasons(home) == ["Drift", "DriftAcknowledged", "Drift"]


def full_disk(home: Path) -> None:
    """Let small files be written and the events grow no further, until the test's end."""
    size = (home / "events.jsonl").stat().st_size
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1, hard))


def room_again() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


@pytest.mark.parametrize("verdict", [Verdict.DIFFERS, Verdict.SAME])
def test_what_was_interrupted_before_its_event_is_told_by_the_next_look(
    home: Path, vm: VmRecord, verdict: Verdict
) -> None:
    journal.record(home, "web", "Normal", "Tested", "x" * 4000)
    if verdict is Verdict.SAME:
        drift.compare(home, vm, (fact(),))
    before = reasons(home)
    full_disk(home)
    try:
        with pytest.raises(OSError, match="too large"):
            drift.compare(home, vm, (fact(verdict),))
    finally:
        room_again()
    assert reasons(home) == before
    # Open is what is recorded, told or not.
    assert bool(drift.open_drifts(home, "web")) == (verdict is Verdict.DIFFERS)
    for _ in range(2):
        drift.compare(home, vm, (fact(verdict),))
    assert reasons(home) == [*before, "Drift" if (verdict is Verdict.DIFFERS) else "DriftResolved"]


@pytest.mark.parametrize("verdict", [Verdict.DIFFERS, Verdict.SAME])
def test_what_was_interrupted_after_its_event_is_not_told_again(
    home: Path, vm: VmRecord, verdict: Verdict
) -> None:
    drift.compare(home, vm, (fact(),))
    entry = records(home)["seccomp"]
    if verdict is Verdict.SAME:
        drift.compare(home, vm, (fact(verdict),))
    before = reasons(home)
    # As it lies on the disk before the last write.
    word = "Drift" if (verdict is Verdict.DIFFERS) else "DriftResolved"
    untold = {"seccomp": {**entry, "untold": word}}
    (home / "sandboxes/web/drift.json").write_text(json.dumps(untold))
    for _ in range(2):
        drift.compare(home, vm, (fact(verdict),))
    assert reasons(home) == before
    assert ("seccomp" in drift.open_drifts(home, "web")) == (verdict is Verdict.DIFFERS)


def test_what_is_open_stays_so_when_its_event_was_dropped_and_is_not_told_again(
    home: Path, vm: VmRecord
) -> None:
    drift.compare(home, vm, (fact(),))
    before = drift.open_drifts(home, "web")
    assert "seccomp" in before
    for _ in range(70):
        journal.record(home, "db", "Normal", "Tested", "x" * 900_000)
    assert reasons(home) == []
    drift.compare(home, vm, (fact(),))
    assert (drift.open_drifts(home, "web"), reasons(home)) == (before, [])
    drift.compare(home, vm, (fact(Verdict.SAME),))
    assert (drift.open_drifts(home, "web"), reasons(home)) == ({}, ["DriftResolved"])


KILLED = """
import sys; sys.path.insert(0, sys.argv[1])
from itertools import count
from pathlib import Path
from reconciler.confinement.facts import Fact, Verdict
from reconciler.engine import drift
from tests.engine import specs
home = Path(sys.argv[2])
vm = specs.vm(home)
for n in count():
    print(n, flush=True)
    verdict = Verdict.SAME if n % 3 == 2 else Verdict.DIFFERS
    have = f"{sys.argv[3]}.{n}"
    facts = [Fact(promise, "on", have, verdict) for promise in ("seccomp", "mounts")]
    drift.compare(home, vm, tuple(facts))
"""


def test_whenever_it_is_killed_each_difference_is_told_once_and_none_is_lost(
    home: Path, vm: VmRecord
) -> None:
    for attempt in range(12):
        command = [sys.executable, "-c", KILLED, str(REPO), str(home), str(attempt)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            for _ in range(3 + attempt % 3):
                child.stdout.readline()
            # Another moment each time; what is asserted holds for every one of them.
            time.sleep(attempt * 0.0007)
            child.kill()
    opened = drift.open_drifts(home, "web")
    drift.compare(home, vm, (fact(have="last"),))
    events = [each for each in journal.read_events(home, "web") if "promise" in each]
    told = Counter((each["reason"], each["promise"], each["since"]) for each in events)
    assert len(told) > 12 * 3
    assert set(told.values()) == {1}
    for promise, entry in opened.items():
        assert told["Drift", promise, entry["since"]] == 1
    for reason, promise, since in told:
        # What is resolved was opened before.
        assert reason == "Drift" or told["Drift", promise, since] == 1
    assert journal.broken_at(home) is None
    assert not any("untold" in entry for entry in records(home).values())
