"""Waiting VMs: got ready, taken once, never stale; with real guests."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.engine import records
from reconciler.engine.records import VmRecord
from reconciler.linux import files, identity
from tests.live import DATA, SMALL, Live, live, until

pytestmark = [pytest.mark.vm, pytest.mark.timeout(300)]

WARM = SMALL + DATA + "state: built\nwarm: 2\n"


@pytest.fixture(scope="module")
def vms() -> Iterator[Live]:
    with live() as world:
        yield world


def waiting(vms: Live, name: str = "web") -> list[VmRecord]:
    found = records.vm_records(vms.home, name)
    return [vm for vm in found if vm.kind == records.WARM and vm.ready]


def filled(vms: Live, name: str = "web", count: int = 2) -> list[VmRecord]:
    """The VMs that wait, once there are as many as declared and nobody is filling."""
    until(lambda: len(waiting(vms, name)) == count)
    with files.locked(vms.home / "sandboxes" / name / "warm.lock", timeout_seconds=60):
        return waiting(vms, name)


def ready(vms: Live, text: str = WARM, name: str = "web", count: int = 2) -> list[VmRecord]:
    """Declare and converge; the VMs that wait then."""
    vms.declare(name, text)
    vms.box("sync", str(vms.folder))
    return filled(vms, name, count)


def cpu_ticks(vm: VmRecord) -> int:
    assert vm.identity is not None
    fields = Path(f"/proc/{vm.identity.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def disks_open(vm: VmRecord) -> list[str]:
    assert vm.identity is not None
    links = [fd.readlink() for fd in Path(f"/proc/{vm.identity.pid}/fd").iterdir()]
    return [link.name for link in links if link.name == "data.img"]


def test_a_run_takes_a_vm_that_waits_and_another_takes_its_place(vms: Live) -> None:
    warmup = (
        "warmup:\n  - echo $$ >> /tmp/warmed\n  - test -d /data && ! grep -q /data /proc/mounts\n"
    )
    before = ready(vms, WARM + warmup)
    assert len({vm.token for vm in before}) == 2
    for vm in before:
        # No disk, and no work either: paused.
        assert disks_open(vm) == []
        ticks = cpu_ticks(vm)
        time.sleep(0.3)
        assert cpu_ticks(vm) == ticks
    done = vms.box(
        "run", "web", "--", "sh", "-c", "wc -l < /tmp/warmed; grep -c /data /proc/mounts"
    )
    assert done.stdout.split() == [b"1", b"1"]
    assert done.stderr == b""
    after = filled(vms)
    assert len({vm.vm for vm in before} & {vm.vm for vm in after}) == 1
    assert len({vm.vm for vm in before} | {vm.vm for vm in after}) == 3


def test_what_was_declared_anew_is_never_served_by_what_waited(vms: Live) -> None:
    old = {vm.vm for vm in ready(vms, WARM + "env: {COLOUR: red}\n")}
    assert vms.box("run", "web", "--", "sh", "-c", "echo $COLOUR").stdout == b"red\n"
    vms.declare("web", WARM + "env: {COLOUR: blue}\n")
    for _ in range(3):
        # At once: nobody has had the time to take the old ones away.
        assert (
            vms.box("run", "--no-data", "web", "--", "sh", "-c", "echo $COLOUR").stdout == b"blue\n"
        )
    vms.box("sync", str(vms.folder))
    new = filled(vms)
    assert not old & {vm.vm for vm in new}
    assert {dict(vm.spec.env)["COLOUR"] for vm in new} == {"blue"}


def test_many_at_once_never_share_a_vm(vms: Live) -> None:
    ready(vms)
    script = "test ! -e /tmp/used && touch /tmp/used && head -c 16 /dev/urandom | od -An -tx1"
    runs = [
        vms.start("run", "--no-data", "web", "--", "sh", "-c", script, stdout=subprocess.PIPE)
        for _ in range(6)
    ]
    said = {run.communicate(timeout=120)[0] for run in runs}
    assert [run.returncode for run in runs] == [0] * 6
    assert len(said) == 6
    filled(vms)


def test_a_vm_that_has_waited_has_the_time_and_new_secrets(vms: Live) -> None:
    before = ready(vms)
    time.sleep(2.5)
    now = time.time()
    said = int(vms.box("run", "--no-data", "web", "--", "date", "+%s").stdout)
    assert now - 1 <= said <= time.time() + 1
    machine = vms.box("run", "--no-data", "web", "--", "cat", "/etc/machine-id")
    assert len(machine.stdout.split()[0]) == 32
    known = b"".join(path.read_bytes() for path in (vms.home / "run").glob("*.json"))
    taken = [vm.token for vm in before if vm.vm not in {each.vm for each in waiting(vms)}]
    assert taken
    assert not any(token.encode() in known for token in taken)
    filled(vms)


def test_data_is_still_one_machines_at_a_time_and_no_vm_is_wasted(vms: Live) -> None:
    before = ready(vms)
    line = "echo kept > /data/file; echo begun; sleep 600"
    holder = vms.start("run", "web", "--", "sh", "-c", line, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    # Its record is there before its command has run.
    assert holder.stdout.readline() == b"begun\n"
    assert len(waiting(vms)) < 2
    other = next(vm for vm in waiting(vms) if vm.vm in {each.vm for each in before})
    refused = vms.box("run", "web", "--", "true", status=125)
    assert b"A `box run` has /data of web" in refused.stderr
    assert other.vm in {vm.vm for vm in waiting(vms)}
    waiter = vms.start("run", "--wait", "60", "web", "--", "cat", "/data/file", stdout=-1)
    holder.send_signal(signal.SIGTERM)
    assert holder.wait(60) == 128 + signal.SIGTERM
    holder.stdout.close()
    assert waiter.communicate(timeout=60)[0] == b"kept\n"
    filled(vms)


@pytest.mark.parametrize("delay", [0.02, 0.06, 0.1, 0.2, 0.3])
def test_a_command_killed_at_any_moment_leaves_nothing_taken(vms: Live, delay: float) -> None:
    ready(vms)
    child = vms.start("run", "web", "--", "sleep", "600", stderr=subprocess.DEVNULL)
    time.sleep(delay)
    child.kill()
    child.wait()
    assert vms.box("run", "web", "--", "echo", "mine").stdout == b"mine\n"
    vms.box("sync", str(vms.folder))
    for vm in records.vm_records(vms.home, "web"):
        assert vm.kind == records.WARM
    filled(vms)


def test_ctrl_c_in_the_middle_leaves_only_what_waits(vms: Live) -> None:
    ready(vms)
    for delay in (0.05, 0.15, 0.4):
        child = vms.start("run", "web", "--", "sleep", "600", stderr=subprocess.DEVNULL)
        time.sleep(delay)
        child.send_signal(signal.SIGINT)
        child.wait(60)
        filled(vms)
        assert {vm.kind for vm in records.vm_records(vms.home, "web")} == {records.WARM}


def test_one_that_died_waiting_is_not_served_and_is_replaced(vms: Live) -> None:
    before = ready(vms)
    for vm in before:
        assert vm.identity is not None
        with identity.open_process(vm.identity) as vmm:
            assert vmm is not None
            vmm.signal(signal.SIGKILL)
            assert vmm.wait(10)
    assert vms.box("run", "web", "--", "echo", "fresh").stdout == b"fresh\n"
    after = filled(vms)
    assert not {vm.vm for vm in before} & {vm.vm for vm in after}


def test_one_whose_notes_are_lost_is_not_served_and_is_taken_away_with_a_warning(
    vms: Live,
) -> None:
    before = ready(vms)
    for vm in before:
        (vm.directory(vms.home) / "start.json").unlink()
    vms.box("run", "--no-data", "web", "--", "true")
    assert {vm.vm for vm in before} <= {vm.vm for vm in records.vm_records(vms.home, "web")}
    vms.box("sync", str(vms.folder))
    assert not {vm.vm for vm in before} & {vm.vm for vm in filled(vms)}
    drained = [each for each in vms.events("web") if each["reason"] == "Drained"][-2:]
    assert {each["type"] for each in drained} == {"Warning"}
    assert all("start.json is missing" in each["message"] for each in drained)


def test_down_and_destroy_and_a_smaller_number_take_them_away(vms: Live) -> None:
    ready(vms)
    one = ready(vms, WARM.replace("warm: 2", "warm: 1"), count=1)
    vms.box("down", "web")
    assert list(records.vm_records(vms.home, "web")) == []
    assert not vms.cgroups()
    # Down means none, also after a run.
    vms.box("run", "web", "--", "true")
    filled(vms, count=0)
    vms.box("up", "web")
    filled(vms, count=1)
    assert one[0].vm not in {vm.vm for vm in waiting(vms)}
    vms.box("destroy", "web")
    assert vms.leftovers() == []


@pytest.mark.parametrize("how", ["down", "destroy"])
def test_what_is_being_got_ready_when_it_is_not_wanted_any_more_goes(vms: Live, how: str) -> None:
    vms.declare("slow", WARM + "warmup:\n  - sleep 3\n")
    filling = vms.start("sync", str(vms.folder), stdout=subprocess.DEVNULL)
    until(lambda: list(records.vm_records(vms.home, "slow")))
    vms.box(how, "slow")
    (vms.folder / "slow.Boxfile").unlink()
    assert filling.wait(100) in (0, 1)
    assert list(records.vm_records(vms.home, "slow")) == []


def test_one_that_is_ready_when_the_sandbox_is_brought_down_goes_and_is_no_failure(
    vms: Live,
) -> None:
    """A pass ends the VMs first and only then says that none is wanted."""
    vms.declare("late", WARM)
    filling = vms.start("sync", str(vms.folder), stdout=subprocess.DEVNULL)
    until(lambda: any(vm.kind == records.WARM for vm in records.vm_records(vms.home, "late")), 200)
    with files.locked(vms.home / "sandboxes/late/lock"):
        until(lambda: waiting(vms, "late"))
        record = records.sandbox_record(vms.home, "late")
        assert record is not None
        stopped = replace(record, spec=replace(record.spec, state="stopped"))
        records.keep_sandbox(vms.home, stopped)
    assert filling.wait(100) == 0
    assert list(records.vm_records(vms.home, "late")) == []
    assert "WarmFailed" not in {event["reason"] for event in vms.events("late")}
    (vms.folder / "late.Boxfile").unlink()
    vms.box("destroy", "late")


def test_a_controller_does_not_wait_for_a_warmup_that_hangs(vms: Live) -> None:
    vms.declare("hangs", WARM + "warmup:\n  - sleep 600\n")
    controller = vms.start(
        "watch", str(vms.folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until(lambda: any(vm.kind == records.WARM for vm in records.vm_records(vms.home, "hangs")), 200)
    vms.declare("other", SMALL + DATA)
    until(lambda: records.vm_record(vms.home, "other") is not None)
    # Not even of the same one it is in the way.
    vms.declare("hangs", WARM.replace("built", "stopped"))
    until(lambda: list(records.vm_records(vms.home, "hangs")) == [])
    controller.send_signal(signal.SIGTERM)
    assert controller.wait(60) == 0
    for name in ("hangs", "other"):
        (vms.folder / f"{name}.Boxfile").unlink()
        vms.box("destroy", name)


def test_a_warmup_that_fails_is_told_and_stops_nothing_else(vms: Live) -> None:
    warmup = "warmup:\n  - ':'\n  - printf 'b\\007ad' >&2; exit 7\n"
    vms.declare("web", SMALL + DATA + "warm: 1\n" + warmup)
    done = vms.box("up", "web")
    assert b"Line 2 of `warmup` exited 7." in done.stderr
    assert waiting(vms) == []
    vms.box("sync", str(vms.folder))
    status = json.loads(vms.box("status", "-o", "json", status=None).stdout)
    (sandbox,) = [each for each in status["sandboxes"] if each["name"] == "web"]
    conditions = {each["type"]: each for each in sandbox["conditions"]}
    assert conditions["Warm"]["status"] == "False"
    assert "exited 7" in conditions["Warm"]["message"]
    assert conditions["Ready"]["status"] == "True"
    # Not again and again: the next pass waits.
    assert b"warm" not in vms.box("plan", str(vms.folder)).stdout
    vms.box("exec", "web", "--", "true")
    vms.box("down", "web")


def test_a_pool_that_the_host_has_no_memory_for_is_refused(vms: Live) -> None:
    vms.declare("big", SMALL.replace("256", "65536") + DATA + "state: built\nwarm: 1\n")
    done = vms.box("sync", str(vms.folder), status=None)
    assert b"Not enough free memory" in done.stdout + done.stderr
    vms.box("destroy", "big", "--data", status=None)
    (vms.folder / "big.Boxfile").unlink()
