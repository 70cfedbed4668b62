"""A VM whose confinement differs is frozen, kept for a look, and let go on or ended by a person."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog

from reconciler.controller.folder import Folder
from reconciler.controller.loop import Loop, Timing
from reconciler.controller.port import LocalEngine
from reconciler.engine import freezing, records
from reconciler.engine.records import VmRecord
from reconciler.linux import cgroups, freezer, identity
from tests.live import DATA, SMALL, Live, until
from tests.surfaces.by_schema import by_schema

pytestmark = [pytest.mark.vm, pytest.mark.root]

FREEZING = SMALL + DATA + "on_drift: freeze\n"
AT_ONCE_SECONDS = 60.0
"""Far below every time that something waits for a guest."""


def pids_max(vms: Live, vm: VmRecord) -> Path:
    pids = cgroups.detect().of_controller("pids")
    assert pids is not None
    return pids.directory(records.policy_of(vms.home, vm).cgroup) / "pids.max"


def weaken(vms: Live, vm: VmRecord | None = None) -> None:
    """Take the VM's limit of processes away."""
    pids_max(vms, vm or vms.vm("web")).write_text("max")


def mend(vms: Live) -> None:
    vm = vms.vm("web")
    pids_max(vms, vm).write_text(str(records.policy_of(vms.home, vm).pids_limit))


def stands(vms: Live) -> bool:
    return freezer.is_frozen(freezing.directories(vms.vm("web")))


def cpu_ticks(vms: Live) -> int:
    fields = Path(f"/proc/{vms.pid('web')}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def reasons(vms: Live) -> Counter[str]:
    return Counter(event["reason"] for event in vms.events("web"))


def since(before: Counter[str], vms: Live) -> dict[str, int]:
    return dict(reasons(vms) - before)


def sync(vms: Live, status: int | None = None) -> None:
    vms.box("sync", str(vms.folder), status=status)


@contextmanager
def at_once() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < AT_ONCE_SECONDS


@pytest.fixture
def frozen(vms: Live) -> Live:
    """A home whose `web` has been frozen by a pass, and the passes since are only looks."""
    vms.declare("web", FREEZING)
    sync(vms)
    weaken(vms)
    sync(vms)
    assert stands(vms)
    return vms


def test_it_is_kept_as_it_was_and_nothing_but_a_look_is_possible(frozen: Live) -> None:
    vms = frozen
    pid, ticks = vms.pid("web"), cpu_ticks(vms)
    here = vms.folder / "note"
    here.write_text("x")
    for words in (
        ("exec", "web", "--", "true"),
        ("shell", "web"),
        ("cp", str(here), "web:/data/note"),
        ("ps", "web"),
        ("run", "web", "--", "true"),
        ("run", "web", "--wait", "60", "--", "true"),
        ("up", "web"),
    ):
        with at_once():
            done = vms.box(*words, status=125)
        assert b"web is frozen" in done.stderr, words
        assert b"box thaw web" in done.stderr, words
        assert b"limit.pids: want " in done.stderr, words
    # What needs nothing of it goes on.
    assert vms.box("run", "web", "--no-data", "--", "echo", "here").stdout == b"here\n"

    value = json.loads(vms.box("inspect", "web", "-o", "json", status=1).stdout)
    assert {f["promise"] for f in value["facts"] if f["verdict"] == "differs"} == {"limit.pids"}
    assert value["frozen"]["stands"] is True
    assert "limit.pids" in value["frozen"]["why"]
    assert b"frozen" in vms.box("inspect", "web", status=1).stdout
    told = vms.box("inspect", "web", "--security-report", status=1).stdout
    assert "it stands still since" in " ".join(told.decode().split())
    assert "box thaw web" in " ".join(told.decode().split())
    status = by_schema("status", vms.box("status", "-o", "json", str(vms.folder)).stdout)
    by_schema("ls", vms.box("ls", "-o", "json").stdout)
    for line in vms.box("events", "-o", "json").stdout.splitlines():
        by_schema("event", line)
    conditions = {each["type"]: each for each in status["sandboxes"][0]["conditions"]}
    assert conditions["Frozen"]["status"] == "True"
    assert "limit.pids" in conditions["Frozen"]["message"]
    assert conditions["Ready"]["reason"] == "Frozen"
    assert b"box thaw web" in vms.box("status", str(vms.folder)).stdout
    sockets = list(vms.vm("web").directory(vms.home).glob("p*"))
    assert sockets
    assert vms.pid("web") == pid
    assert cpu_ticks(vms) == ticks


def test_passes_and_edits_leave_it_alone_and_tell_it_once(frozen: Live) -> None:
    vms = frozen
    pid = vms.pid("web")
    events = vms.events("web")
    # Of this VM: the home is that of other tests too.
    started = max(i for i, each in enumerate(events) if each["reason"] == "Started")
    drift, event = events[started + 1 :]
    assert (drift["promise"], drift["have"]) == ("limit.pids", "no limit")
    assert str(drift["pid"]) == str(pid)
    assert (drift["reason"], event["reason"], event["type"]) == ("Drift", "Frozen", "Warning")
    assert "limit.pids: want " in event["message"]
    before = reasons(vms)
    for text in (FREEZING, FREEZING.replace("256", "300"), SMALL + DATA + "on_drift: alert\n"):
        vms.declare("web", text)
        sync(vms)
        sync(vms)
        assert vms.pid("web") == pid
        assert stands(vms)
    assert set(since(before, vms)) == {"Accepted"}


def test_a_controller_freezes_it_and_the_next_one_finds_it_so(vms: Live) -> None:
    vms.declare("web", FREEZING)
    sync(vms)
    pid = vms.pid("web")
    weaken(vms)
    command = ("watch", str(vms.folder))
    first = vms.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: stands(vms) and reasons(vms)["Frozen"])
    first.kill()
    first.wait()
    # Somebody else lets it go on: only `box thaw` counts.
    freezer.thaw(freezing.directories(vms.vm("web")))
    assert not stands(vms)
    assert b"box thaw web" in vms.box("exec", "web", "--", "true", status=125).stderr
    before = reasons(vms)
    second = vms.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: stands(vms) and reasons(vms)["Frozen"] > before["Frozen"])
    assert since(before, vms) == {"Frozen": 1}
    assert vms.pid("web") == pid
    second.send_signal(signal.SIGTERM)
    assert second.wait(20) == 0


def test_thawed_it_goes_on_where_it_was_until_it_differs_again(frozen: Live) -> None:
    vms = frozen
    pid = vms.pid("web")
    before = reasons(vms)
    said = vms.box("thaw", "web")
    assert b"frozen again" in said.stderr
    assert b"limit.pids" in said.stderr
    vms.box("exec", "web", "--", "sh", "-c", "echo kept >/tmp/f")
    assert since(before, vms) == {"Thawed": 1, "DriftAcknowledged": 1}
    # Still different at the next reading: a new finding, and the same answer.
    sync(vms)
    assert stands(vms)
    assert since(before, vms) == {"Thawed": 1, "DriftAcknowledged": 1, "Drift": 1, "Frozen": 1}
    mend(vms)
    assert vms.box("thaw", "web").stderr == b""
    assert vms.box("exec", "web", "--", "cat", "/tmp/f").stdout == b"kept\n"
    sync(vms)
    assert vms.pid("web") == pid
    assert b"not frozen" in vms.box("thaw", "web").stdout
    status = vms.box("status", str(vms.folder)).stdout
    assert b"Frozen" not in status
    assert vms.box("inspect", "web").returncode == 0


def test_brought_down_it_stays_down_until_somebody_brings_it_up(frozen: Live) -> None:
    vms = frozen
    incarnation = vms.vm("web").incarnation
    with at_once():
        vms.box("down", "web")
    assert vms.leftovers() == []
    for _ in range(2):
        sync(vms)
        assert records.vm_record(vms.home, "web") is None
    assert b"StoppedForDrift" in vms.box("status", str(vms.folder)).stdout
    vms.box("thaw", "web", status=125)
    vms.box("up", "web")
    assert vms.vm("web").incarnation == incarnation + 1
    vms.box("exec", "web", "--", "true")
    assert vms.box("inspect", "web").returncode == 0


def test_killed_while_it_was_frozen_it_is_not_replaced(frozen: Live) -> None:
    vms = frozen
    who = vms.vm("web").identity
    assert who is not None
    cgroups.kill_all(freezing.directories(vms.vm("web")))
    assert not identity.runs(who)
    sync(vms)
    assert vms.vm("web").identity == who
    vms.box("up", "web")
    vms.box("exec", "web", "--", "true")


def test_a_waiting_vm_that_differs_is_taken_away_with_a_warning(vms: Live) -> None:
    vms.declare("web", FREEZING + "state: built\nwarm: 1\n")
    sync(vms)
    (vm,) = [each for each in records.vm_records(vms.home, "web") if each.ready]
    weaken(vms, vm)
    sync(vms)
    event = [each for each in vms.events("web") if each["reason"] == "Drained"][-1]
    assert event["type"] == "Warning"
    assert vm.vm in event["message"]
    assert "limit.pids: want " in event["message"]
    assert "have no limit" in event["message"]
    assert event["vm"] == vm.vm
    assert vm.identity is not None
    assert str(event["pid"]) == str(vm.identity.pid)


@contextmanager
def fast_controller(vms: Live) -> Iterator[None]:
    """Read everything again and again, as fast as it goes, beside what a test does."""
    loop = Loop(
        LocalEngine(vms.home),
        vms.home,
        Folder(vms.folder),
        structlog.stdlib.get_logger(),
        Timing(resync_seconds=0.02),
    )
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield
    finally:
        loop.stop()
        thread.join(60)
    assert not thread.is_alive()


def test_nothing_that_we_do_ourselves_is_taken_for_drift(vms: Live) -> None:
    """Readings in a loop beside starts, stops, replacements, and a freezing by their side."""
    other = FREEZING.replace("256", "257")
    # They keep the snapshots that `web` is restored from: a boot each time takes long.
    vms.declare("other", other + "state: built\n")
    vms.declare("same", FREEZING + "state: built\n")
    sync(vms)
    vms.declare("web", FREEZING)
    sync(vms)
    before = reasons(vms)
    with fast_controller(vms):
        for _ in range(3):
            incarnation = vms.vm("web").incarnation
            vms.declare("web", other)
            until(lambda old=incarnation: is_up(vms, old + 1))  # type: ignore[misc]
            # Stopped by a command; the controller starts it again at once.
            vms.box("down", "web")
            until(lambda old=incarnation: is_up(vms, old + 2))  # type: ignore[misc]
            vms.declare("web", FREEZING + "state: stopped\n")
            until(lambda: records.vm_record(vms.home, "web") is None)
            vms.declare("web", FREEZING)
            until(lambda old=incarnation: is_up(vms, old + 3))  # type: ignore[misc]
            vms.box("run", "web", "--no-data", "--", "true")
        done = since(before, vms)
        assert done["Replaced"] + done["Started"] >= 9
        assert done.keys() <= {"Accepted", "Started", "Stopped", "Replaced", "Collected"}
        # Such readings see what differs, and see it once.
        weaken(vms)
        until(lambda: reasons(vms)["Frozen"] > before["Frozen"])
        mend(vms)
        until(lambda: reasons(vms)["DriftResolved"] > before["DriftResolved"])
        vms.box("thaw", "web")
        vms.box("exec", "web", "--", "true")
    done = since(before, vms)
    assert (done["Drift"], done["Frozen"], done["Thawed"]) == (1, 1, 1)


def is_up(vms: Live, incarnation: int) -> bool:
    record = records.vm_record(vms.home, "web")
    return record is not None and record.incarnation >= incarnation and record.identity is not None


def test_destroyed_it_leaves_nothing(frozen: Live) -> None:
    with at_once():
        frozen.box("destroy", "web")
    assert frozen.leftovers() == []
