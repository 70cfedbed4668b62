"""A folder of Boxfiles is kept as declared, with real VMs, by real controllers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.engine import records
from reconciler.linux import cgroups
from tests.live import DATA, SMALL, Live, until
from tests.surfaces.by_schema import by_schema

pytestmark = [pytest.mark.vm, pytest.mark.root]

IDLE = SMALL + DATA + "state: stopped\n"


def running(vms: Live, name: str) -> Callable[[], bool]:
    def check() -> bool:
        record = records.vm_record(vms.home, name)
        return record is not None and record.identity is not None

    return check


def gone(vms: Live, name: str) -> Callable[[], bool]:
    return lambda: records.vm_record(vms.home, name) is None


def reasons(vms: Live, name: str) -> list[str]:
    return [event["reason"] for event in vms.events(name)]


def watch(vms: Live) -> subprocess.Popen[bytes]:
    return vms.start("watch", str(vms.folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_sync_makes_what_is_declared_and_then_has_nothing_to_do(vms: Live) -> None:
    vms.declare("web")
    vms.declare("idle", IDLE)
    planned = vms.box("plan", str(vms.folder), status=2)
    assert b"web" in planned.stdout
    done = vms.box("sync", str(vms.folder))
    assert b"web" in done.stdout
    assert b"idle" in done.stdout
    pid = vms.pid("web")
    vms.box("plan", str(vms.folder), status=0)
    vms.box("sync", str(vms.folder))
    assert vms.pid("web") == pid
    assert gone(vms, "idle")()
    status = by_schema("status", vms.box("status", "-o", "json", str(vms.folder)).stdout)
    assert "web" in json.dumps(status)


def test_two_strict_sandboxes_share_no_uid_and_no_namespace(vms: Live) -> None:
    for name in ("web", "other"):
        vms.declare(name)
    vms.box("sync", str(vms.folder))
    pids = [vms.pid("web"), vms.pid("other")]
    uids = {Path(f"/proc/{pid}").stat().st_uid // 65536 for pid in pids}
    assert len(uids) == 2
    for space in ("user", "mnt", "pid", "ipc", "uts", "net", "cgroup"):
        links = {Path(f"/proc/{pid}/ns/{space}").readlink() for pid in (*pids, "self")}
        assert len(links) == 3


def test_exec_runs_in_the_standing_machine(vms: Live) -> None:
    vms.declare("web")
    vms.box("up", "web")
    vms.box("exec", "web", "--", "sh", "-c", "echo here >/tmp/f")
    done = vms.box("exec", "web", "--", "cat", "/tmp/f", "-", stdin=b"\0\xff")
    assert done.stdout == b"here\n\0\xff"
    vms.box("down", "web")
    done = vms.box("exec", "web", "--", "true", status=125)
    assert b"box up web" in done.stderr
    assert vms.leftovers() == []


def test_a_bad_file_harms_only_itself(vms: Live) -> None:
    vms.declare("web")
    vms.declare("bad", "version: 1\nbase: [\n")
    vms.declare("typo", SMALL + "rams_mib: 5\n")
    done = vms.box("sync", str(vms.folder), status=1)
    assert running(vms, "web")()
    assert b"rams_mib" in done.stdout + done.stderr


def test_a_bad_edit_leaves_the_running_machine_alone(vms: Live) -> None:
    vms.declare("web")
    vms.box("sync", str(vms.folder))
    pid = vms.pid("web")
    vms.declare("web", "version: 1\nbase: [\n")
    vms.box("sync", str(vms.folder), status=1)
    assert vms.pid("web") == pid
    vms.box("exec", "web", "--", "true")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SMALL + "data_size: 32M\n", b"box cannot shrink a disk yet"),
        (SMALL.replace("builtin:busybox", "oci-archive:./missing.tar") + DATA, b"missing.tar"),
        (SMALL + DATA + "backend: podman\n", b"does not have podman yet"),
        (SMALL + DATA + "passt: true\n", b"is for the backends krun and podman"),
    ],
    ids=["smaller-disk", "missing-base", "backend-to-come", "not-for-qemu"],
)
def test_an_edit_that_cannot_be_made_so_leaves_the_running_machine_alone(
    vms: Live, text: str, said: bytes
) -> None:
    vms.declare("web")
    vms.box("sync", str(vms.folder))
    pid = vms.pid("web")
    vms.declare("web", text)
    done = vms.box("sync", str(vms.folder), status=1)
    assert said in done.stdout + done.stderr
    assert vms.pid("web") == pid
    vms.box("exec", "web", "--", "true", status=None)
    vms.declare("web")
    vms.box("sync", str(vms.folder))
    assert vms.pid("web") == pid


def test_a_plan_says_what_each_change_does_and_which_one_widens(vms: Live) -> None:
    vms.declare("web", SMALL + DATA + "readonly: true\n")
    vms.box("sync", str(vms.folder))
    vms.declare("web", SMALL + DATA + "timeout_seconds: 9\nenv: {TOKEN: s3cret}\n")
    text = vms.box("plan", str(vms.folder), status=2).stdout.decode()
    assert "readonly true→false (restart, wider)" in text
    assert "timeout_seconds 0→9 (live), env +TOKEN (live)" in text
    assert "s3cret" not in text
    planned = by_schema("plan", vms.box("plan", "-o", "json", str(vms.folder), status=2).stdout)
    (sandbox,) = planned["sandboxes"]
    changes = {each["field"]: each for action in sandbox["actions"] for each in action["changes"]}
    assert changes["readonly"] == {
        "field": "readonly",
        "effect": "restart",
        "widening": True,
        "text": "readonly true→false",
    }


def test_watch_follows_every_change(vms: Live) -> None:
    vms.box("sync", str(vms.folder))
    controller = watch(vms)
    path = vms.declare("web")
    until(running(vms, "web"))
    first = vms.pid("web")
    vms.box("exec", "web", "--", "sh", "-c", "echo kept >/data/f; sync")

    # What can be given to a running machine does not cost it its life.
    vms.declare("web", SMALL + DATA + "env:\n  WHO: me\n")
    until(lambda: dict(vms.vm("web").spec.env) == {"WHO": "me"})
    assert vms.box("exec", "web", "--", "sh", "-c", "echo $WHO").stdout == b"me\n"
    assert vms.pid("web") == first

    # What cannot, replaces it.
    vms.declare("web", SMALL.replace("ram_mib: 256", "ram_mib: 300") + DATA)
    until(lambda: running(vms, "web")() and vms.pid("web") != first)
    assert vms.box("exec", "web", "--", "cat", "/data/f").stdout == b"kept\n"

    vms.declare("web", IDLE)
    until(gone(vms, "web"))
    vms.declare("web")
    until(running(vms, "web"))

    path.unlink()
    until(lambda: records.sandbox_record(vms.home, "web") is None)
    assert vms.leftovers() == []
    assert (vms.home / "sandboxes" / "web" / "data.img").exists()

    vms.declare("web")
    until(running(vms, "web"))
    assert vms.box("exec", "web", "--", "cat", "/data/f").stdout == b"kept\n"
    controller.send_signal(signal.SIGTERM)
    assert controller.wait(20) == 0
    assert running(vms, "web")()


def test_a_killed_machine_is_drift_and_comes_back(vms: Live) -> None:
    vms.declare("web")
    watch(vms)
    until(running(vms, "web"))
    until(lambda: "Started" in reasons(vms, "web"))
    first, pid = vms.vm("web"), vms.pid("web")
    before = Counter(reasons(vms, "web"))
    os.kill(pid, signal.SIGKILL)
    until(lambda: running(vms, "web")() and vms.pid("web") != pid)
    until(lambda: reasons(vms, "web").count("DriftResolved") > before["DriftResolved"])
    assert vms.vm("web").incarnation == first.incarnation + 1
    assert Counter(reasons(vms, "web"))["Drift"] == before["Drift"] + 1


def test_a_machine_found_less_confined_is_stopped_and_stays_so(vms: Live) -> None:
    vms.declare("web")
    watch(vms)
    until(running(vms, "web"))
    until(lambda: "Started" in reasons(vms, "web"))
    before = Counter(reasons(vms, "web"))
    policy = records.policy_of(vms.home, vms.vm("web"))
    layout = cgroups.detect()
    pids = layout.of_controller("pids")
    assert pids is not None
    (pids.directory(policy.cgroup) / "pids.max").write_text("max")
    until(gone(vms, "web"))
    vms.declare("other", IDLE)
    until(lambda: records.sandbox_record(vms.home, "other") is not None)
    assert gone(vms, "web")()
    drifts = [event for event in vms.events("web") if event["reason"] == "Drift"]
    assert drifts[-1]["promise"] == "limit.pids"
    assert Counter(reasons(vms, "web"))["Drift"] == before["Drift"] + 1
    status = vms.box("status", str(vms.folder), status=None).stdout
    assert b"StoppedForDrift" in status
    vms.box("up", "web")
    assert running(vms, "web")()
    assert vms.box("events", "--verify").returncode == 0


def test_machines_outlive_a_killed_controller_and_the_next_adopts_them(vms: Live) -> None:
    vms.declare("web")
    controller = watch(vms)
    until(running(vms, "web"))
    until(lambda: "Started" in reasons(vms, "web"))
    pid = vms.pid("web")
    starts = reasons(vms, "web").count("Started")
    controller.kill()
    controller.wait()
    vms.box("exec", "web", "--", "true")
    watch(vms)
    vms.declare("other", IDLE)
    until(lambda: records.sandbox_record(vms.home, "other") is not None)
    assert vms.pid("web") == pid
    assert reasons(vms, "web").count("Started") == starts


def test_a_second_controller_on_the_folder_refuses(vms: Live) -> None:
    vms.declare("idle", IDLE)
    first = watch(vms)
    until(lambda: records.sandbox_record(vms.home, "idle") is not None)
    done = vms.box("watch", str(vms.folder), status=125)
    assert str(first.pid).encode() in done.stderr


@pytest.mark.parametrize("delay", [0.2, 0.5, 0.8, 1.2])
def test_a_controller_killed_at_any_step_is_repaired_after(vms: Live, delay: float) -> None:
    vms.declare("web")
    controller = watch(vms)
    with pytest.raises(subprocess.TimeoutExpired):
        controller.wait(delay)
    controller.kill()
    controller.wait()
    vms.box("sync", str(vms.folder))
    vms.box("exec", "web", "--", "true")
    assert len(list((vms.home / "runtime").glob("*/state.json"))) == 1


def test_the_token_is_nowhere_to_be_seen(vms: Live) -> None:
    vms.declare("web")
    vms.box("up", "web")
    token = vms.vm("web").token
    seen = vms.box("inspect", "web", "-o", "json").stdout + vms.box("ls").stdout
    seen += (vms.home / "events.jsonl").read_bytes()
    seen += vms.box("exec", "web", "--", "sh", "-c", "cat /proc/cmdline /proc/*/environ; :").stdout
    for name in ("cmdline", "environ"):
        path = Path(f"/proc/{vms.pid('web')}/{name}")
        with path.open("rb") as stream:
            seen += stream.read()
    assert token.encode() not in seen
    assert bytes.fromhex(token) not in seen
    assert (vms.home / "run" / "web.json").stat().st_mode & 0o777 == 0o600


def test_inspect_shows_every_fact_of_the_running_machine(vms: Live) -> None:
    vms.declare("web")
    vms.box("up", "web")
    value = json.loads(vms.box("inspect", "web", "-o", "json").stdout)
    verdicts = {fact["promise"]: fact["verdict"] for fact in value["facts"]}
    assert verdicts["seccomp"] == "same"
    assert set(verdicts.values()) <= {"same", "not_applicable"}
    assert value["kernel_proof"]["guest"]["boot_id"] != value["kernel_proof"]["host"]["boot_id"]
