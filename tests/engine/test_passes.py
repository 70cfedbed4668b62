"""Passes that start no VM, over real cgroups and processes; those that do are in test_vm_*."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.backends import runtime
from reconciler.engine import journal, passes, records, traces
from reconciler.engine.home import sandbox_directory
from reconciler.engine.outcome import Again, Done, Outcome
from reconciler.engine.spec import Spec
from reconciler.linux import cgroups, files, identity
from reconciler.linux.identity import ProcessIdentity
from tests.engine import specs

REPO = Path(passes.__file__).parents[2]
STOPPED = specs.spec(state="stopped")
Sleeper = Callable[[], tuple[subprocess.Popen[bytes], ProcessIdentity]]


def quiet(_text: str) -> None:
    return


def run(home: Path, spec: Spec | None, source: Path | None = None) -> Outcome:
    return passes.run_pass(home, "web", spec, source=source, folder=None, progress=quiet)


def done(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, Done), outcome
    return [action.kind.value for action in outcome.actions]


def directories(home: Path, vm: str) -> list[Path]:
    path = runtime.cgroup_path(runtime.find_runtime(), traces.group_of(home, vm))
    return [each for each in cgroups.detect().directories(path) if each.exists()]


def gone(home: Path, vm: str, who: ProcessIdentity) -> bool:
    with identity.open_process(who) as process:
        alive = process is not None and process.alive
    places = (home / "run" / vm, home / "run" / f"{vm}.json", home / "runtime" / vm)
    left = any(place.exists() for place in places)
    return not alive and not left and not directories(home, vm)


def test_a_stopped_sandbox_is_recorded_and_twice_is_the_same_as_once(home: Path) -> None:
    assert done(run(home, STOPPED)) == ["update"]
    record = records.sandbox_record(home, "web")
    assert record is not None
    assert record.spec == STOPPED
    assert done(run(home, STOPPED)) == []
    assert [event["reason"] for event in journal.read_events(home)] == ["Accepted"]


def test_an_absent_sandbox_that_is_not_known_is_nothing_to_do(home: Path) -> None:
    assert done(run(home, None)) == []


def test_what_is_absent_is_forgotten_but_for_its_data(home: Path) -> None:
    run(home, STOPPED)
    (home / "sandboxes/web/data.img").write_bytes(b"precious")
    assert done(run(home, None)) == ["destroy"]
    assert records.sandbox_record(home, "web") is None
    assert (home / "sandboxes/web/data.img").read_bytes() == b"precious"


def test_a_protected_sandbox_stays(home: Path) -> None:
    run(home, dataclasses.replace(STOPPED, protect=True))
    assert done(run(home, None)) == []
    assert records.sandbox_record(home, "web") is not None


def test_where_it_is_declared_is_noted_anew_each_time(home: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        source = tmp_path / name
        source.write_text("")
        run(home, STOPPED, source)
        record = records.sandbox_record(home, "web")
        assert record is not None
        assert (record.source, record.source_stamp) == (str(source), records.stamp(source))


@pytest.mark.root
@pytest.mark.parametrize("known", [True, False])
def test_a_half_started_vm_of_a_stopped_sandbox_is_taken_away(
    home: Path, jailed: Callable[[str], ProcessIdentity], *, known: bool
) -> None:
    run(home, STOPPED)
    who = jailed("web")
    # The starter was killed before or after it knew the process: the latter has ended since.
    records.keep_vm(home, specs.vm(home, identity=_ended() if known else None))
    assert done(run(home, STOPPED)) == ["stop"]
    assert gone(home, "web", who)
    assert done(run(home, STOPPED)) == []


def _ended() -> ProcessIdentity:
    child = subprocess.Popen(["/bin/sleep", "60"])
    who = identity.identify(child.pid)
    child.kill()
    child.wait(10)
    assert who is not None
    return who


@pytest.mark.root
@pytest.mark.parametrize("spec", [STOPPED, None])
def test_a_vm_with_a_broken_record_is_ended_by_its_name(
    home: Path, jailed: Callable[[str], ProcessIdentity], spec: Spec | None
) -> None:
    run(home, STOPPED)
    standing, once = jailed("web"), jailed("web.1234abcd")
    other = jailed("web-2")
    for vm in ("web", "web.1234abcd"):
        (home / "run" / f"{vm}.json").write_text('{"group": ""}')
    assert done(run(home, spec))[:2] == ["reap", "reap"]
    assert gone(home, "web", standing)
    assert gone(home, "web.1234abcd", once)
    with identity.open_process(other) as process:
        assert process is not None


@pytest.mark.root
def test_a_run_that_was_killed_is_reaped_and_one_that_lives_is_not(
    home: Path, jailed: Callable[[str], ProcessIdentity], sleeper: Sleeper
) -> None:
    run(home, STOPPED)
    owner, owner_identity = sleeper()
    who = jailed("web.1234abcd")
    records.keep_vm(home, specs.vm(home, "web.1234abcd", identity=who, owner=owner_identity))
    assert done(run(home, STOPPED)) == []
    owner.kill()
    owner.wait(10)
    assert done(run(home, STOPPED)) == ["reap"]
    assert gone(home, "web.1234abcd", who)


@pytest.mark.root
def test_destroying_ends_what_has_no_readable_record_too(
    home: Path, jailed: Callable[[str], ProcessIdentity]
) -> None:
    run(home, STOPPED)
    who = jailed("web")
    (home / "run/web.json").write_text("{")
    (home / "sandboxes/web/data.img").write_bytes(b"x")
    passes.destroy(home, "web", with_data=True, progress=quiet)
    assert gone(home, "web", who)
    assert not (home / "sandboxes/web/data.img").exists()


INTERRUPTED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from reconciler.engine import passes, records
from reconciler.engine.records import VmRecord
from reconciler.linux import identity
from dataclasses import replace
home = Path(sys.argv[2])
vm = records.vm_record(home, "web.1234abcd")
records.keep_vm(home, replace(vm, owner=identity.identify(os.getpid())))
def interrupt(text):
    raise KeyboardInterrupt
try:
    # Ending what stands tells its progress first: that is where the interrupt comes.
    passes.destroy(home, "web", with_data=False, progress=interrupt)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.root
def test_an_interrupt_takes_along_what_is_half_started_and_its_own(
    home: Path, jailed: Callable[[str], ProcessIdentity]
) -> None:
    run(home, STOPPED)
    half, own = jailed("web"), jailed("web.1234abcd")
    records.keep_vm(home, specs.vm(home))
    records.keep_vm(home, specs.vm(home, "web.1234abcd", identity=own))
    said = subprocess.run(
        [sys.executable, "-I", "-c", INTERRUPTED, REPO, home],
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout
    assert said == b"interrupted\n"
    assert gone(home, "web", half)
    assert gone(home, "web.1234abcd", own)


@pytest.mark.root
def test_an_interrupt_leaves_a_running_vm_alone(
    home: Path, jailed: Callable[[str], ProcessIdentity]
) -> None:
    who = jailed("web")
    records.keep_vm(home, specs.vm(home, identity=who))

    def interrupt(_text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        passes.destroy(home, "web", with_data=False, progress=interrupt)
    with identity.open_process(who) as process:
        assert process is not None
        assert process.alive


def test_a_folder_in_the_place_of_a_record_gives_way_too(home: Path) -> None:
    run(home, STOPPED)
    path = home / "sandboxes/web/record.json"
    path.unlink()
    path.mkdir()
    assert isinstance(run(home, STOPPED), Done)
    assert path.with_name("record.json.broken").is_dir()
    assert records.sandbox_record(home, "web") is not None


def test_a_record_that_cannot_be_read_is_made_anew_from_the_boxfile(home: Path) -> None:
    run(home, STOPPED)
    path = home / "sandboxes/web/record.json"
    path.write_text("{")
    assert isinstance(run(home, STOPPED), Done)
    record = records.sandbox_record(home, "web")
    assert record is not None
    assert record.spec == STOPPED
    assert path.with_name("record.json.broken").read_text() == "{"
    assert "RecordBroken" in [event["reason"] for event in journal.read_events(home, "web")]


def test_a_sandboxs_own_failure_is_in_the_outcome_and_in_the_events(home: Path) -> None:
    run(home, STOPPED)
    path = home / "sandboxes/web/record.json"
    path.write_text("{")
    # Where it would be put aside.
    path.with_name("record.json.broken").mkdir()
    outcome = run(home, STOPPED)
    assert isinstance(outcome, Again)
    assert outcome.after_seconds > 0
    assert str(path) in str(outcome.error)
    assert [event["reason"] for event in journal.read_events(home)][-1] == "PassFailed"
    path.with_name("record.json.broken").rmdir()
    assert done(run(home, STOPPED)) == ["update"]


def test_two_passes_over_one_sandbox_do_not_overlap(home: Path) -> None:
    with files.locked(sandbox_directory(home, "web") / "lock"):
        script = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "from pathlib import Path\n"
            "from reconciler.engine import passes\n"
            "passes._LOCK_SECONDS = 0.1\n"
            "print(passes.run_pass(Path(sys.argv[2]), 'web', None, source=None, folder=None,"
            " progress=print).error.brief)\n"
        )
        said = subprocess.run(
            [sys.executable, "-I", "-c", script, REPO, home],
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
    assert said.startswith(b"another box command holds")


def test_an_unreadable_event_file_does_not_raise(home: Path) -> None:
    (home / "events.jsonl").mkdir()
    outcome = run(home, STOPPED)
    assert isinstance(outcome, Again)


def test_the_stamp_of_a_file_changes_with_it_and_is_empty_without_one(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert records.stamp(path) == ""
    path.write_text("a")
    first = records.stamp(path)
    path.unlink()
    path.write_text("a")
    os.utime(path, ns=(1, 1))
    assert records.stamp(path) != first
