"""The security report of real VMs: up, down, waiting, weakened while they run."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reconciler.engine import records
from reconciler.linux import cgroups
from tests.live import BOX, DATA, SMALL, Live, until

pytestmark = [pytest.mark.vm, pytest.mark.root]

SCHEMAS = Path(__file__).parents[2] / "schemas"
WARM = SMALL + DATA + "warm: 1\nstate: built\n"


def read_json(vms: Live, *arguments: str, status: int = 0) -> Any:  # noqa: ANN401 - any JSON
    return json.loads(vms.box("inspect", *arguments, status=status).stdout)


def report(vms: Live, name: str, status: int = 0) -> dict[str, Any]:
    value: dict[str, Any] = read_json(vms, name, "--security-report=json", status=status)
    schema = json.loads((SCHEMAS / "security-report.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(value)
    return value


def text_of(vms: Live, name: str, status: int = 0) -> list[str]:
    lines = vms.box("inspect", name, "--security-report", status=status).stdout.decode()
    found = lines.splitlines()
    assert len(found) < 40
    assert all(len(line) <= 80 and line.isprintable() for line in found)
    return found


def test_what_it_says_of_a_running_vm_is_what_the_host_sees(vms: Live) -> None:
    vms.declare("web")
    vms.box("up", "web")
    (vm,) = report(vms, "web")["vms"]
    assert vms.vm("web").token not in json.dumps(vm)
    known, pid = vm["configuration"], vms.pid("web")
    assert (vm["pid"], vm["state"], vm["role"]) == (pid, "up", "standing")
    assert {fact["verdict"] for fact in vm["facts"]} <= {"same", "not_applicable"}
    assert vm["boundary"]["verdict"] == "same"
    assert vm["escape_is_your_account"] is False
    stat = Path(f"/proc/{pid}").stat()
    assert (stat.st_uid, stat.st_gid) == (known["uid"], known["gid"])
    assert pwd.getpwuid(os.getuid()).pw_uid != known["uid"]
    targets = {line.split()[4] for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()}
    assert {each["target"] for each in known["mounts"]} <= targets
    assert all(each["read_only"] for each in known["mounts"])
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    assert vm["start_time_ticks"] == int(ticks)
    assert known["data"]["bytes"] == 64 << 20
    whole = "\n".join(text_of(vms, "web"))
    # What box itself gives each VMM is no mount of the user's.
    assert "host mounts: none" in whole
    assert "read-only: kernel, RAM disk, root image, env, " in " ".join(whole.split())
    assert f"lands in UID {known['uid']}, not in your account" in whole
    assert f"PID {pid}" in whole
    # The form of before is still there, and is what programs read it by.
    assert read_json(vms, "web", "-o", "json")["pid"] == pid
    assert read_json(vms, "web", "--security-report", "-o", "json")["vms"][0]["pid"] == pid


def test_it_is_read_the_same_from_another_mount_namespace(vms: Live) -> None:
    """As by a box in a systemd unit with PrivateTmp=: all mounts have other numbers there."""
    vms.declare("web")
    vms.box("up", "web")
    vms.box("exec", "web", "--", "sh", "-c", "echo >/data/f")
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", BOX, "inspect", "web", "-o", "json"],
        env=vms.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    facts = json.loads(done.stdout)["facts"]
    assert [fact for fact in facts if fact["verdict"] not in {"same", "not_applicable"}] == []
    assert done.returncode == 0


def test_a_sandbox_that_is_down_is_reported_as_it_would_be_started(vms: Live) -> None:
    vms.declare("web")
    vms.box("up", "web")
    (up,) = report(vms, "web")["vms"]
    vms.box("down", "web")
    value = report(vms, "web")
    (down,) = value["vms"]
    assert (value["verdict"], down["state"], down["pid"]) == ("not_read", "down", None)
    assert {fact["verdict"] for fact in down["facts"]} == {None}
    # What is said before a start is what the start was given.
    before, after = (dict(vm["configuration"]) for vm in (down, up))
    assert before.pop("source") != after.pop("source")
    assert before == after
    assert [fact["id"] for fact in up["facts"]] == [fact["id"] for fact in down["facts"]]
    assert "no VMM of it runs" in text_of(vms, "web")[0]


def test_a_difference_is_named_and_fails_and_so_does_what_cannot_be_read(vms: Live) -> None:
    vms.declare("web")
    vms.box("up", "web")
    policy = records.policy_of(vms.home, vms.vm("web"))
    pids = cgroups.detect().of_controller("pids")
    assert pids is not None
    limit = pids.directory(policy.cgroup) / "pids.max"
    limit.write_text("max")
    (vm,) = report(vms, "web", status=1)["vms"]
    bad = [f["id"] for f in vm["facts"] if f["verdict"] not in {"same", "not_applicable"}]
    assert bad == ["limit.pids"]
    whole = " ".join(" ".join(text_of(vms, "web", status=1)).split())
    assert f"DIFFERS limit.pids: want {policy.pids_limit}, have no limit" in whole
    limit.write_text(str(policy.pids_limit))
    assert report(vms, "web")["verdict"] == "same"

    written = vms.home / "run" / "web" / "policy.json"
    kept = written.read_bytes()
    # Told something else than what is so, it says that this is not so.
    value = json.loads(kept)
    written.write_text(json.dumps({**value, "pids_limit": 7, "capabilities": ["CAP_SYS_ADMIN"]}))
    (vm,) = report(vms, "web", status=1)["vms"]
    assert {f["id"] for f in vm["facts"] if f["verdict"] == "differs"} == {
        "limit.pids",
        "capabilities",
    }
    written.write_text("{")
    assert report(vms, "web", status=1)["verdict"] == "unreadable"
    written.write_bytes(kept)
    assert report(vms, "web")["verdict"] == "same"

    record = vms.home / "run" / "web.json"
    kept = record.read_bytes()
    for broken in (None, b"{"):
        record.unlink()
        if broken:
            record.write_bytes(broken)
        assert report(vms, "web", status=1)["lost_vms"] == ["web"]
        assert read_json(vms, "web", "-o", "json", status=1)["lost"] == ["web"]
        record.unlink(missing_ok=True)
        record.write_bytes(kept)
        record.chmod(0o600)
    assert read_json(vms, "web", "-o", "json")["lost"] == []


def test_waiting_vms_are_read_too(vms: Live) -> None:
    vms.declare("web", WARM)
    vms.box("sync", str(vms.folder))

    def waiting() -> list[records.VmRecord]:
        return [vm for vm in records.vm_records(vms.home, "web") if vm.kind == records.WARM]

    until(lambda: any(vm.ready for vm in waiting()))
    value = report(vms, "web")
    (vm,) = [each for each in value["vms"] if each["role"] == "waiting"]
    assert vm["state"] == "up"
    assert {fact["verdict"] for fact in vm["facts"]} <= {"same", "not_applicable"}
    assert vm["configuration"]["data"] is None
    assert any(line.startswith("ok       waiting") for line in text_of(vms, "web"))
    (plain,) = read_json(vms, "web", "-o", "json")["waiting"]
    assert (plain["vm"], plain["read"], plain["fault"]) == (vm["vm"], True, None)
    (record,) = waiting()
    pids = cgroups.detect().of_controller("pids")
    assert pids is not None
    (pids.directory(records.policy_of(vms.home, record).cgroup) / "pids.max").write_text("max")
    assert report(vms, "web", status=1)["verdict"] == "differs"
    assert any(line.startswith("NOT SO   waiting") for line in text_of(vms, "web", status=1))
    (plain,) = read_json(vms, "web", "-o", "json", status=1)["waiting"]
    assert plain["fault"].startswith("confinement differs: limit.pids")


def test_two_sandboxes_are_compared(vms: Live) -> None:
    vms.declare("web")
    vms.declare("other", SMALL.replace("ram_mib: 256", "ram_mib: 300") + DATA)
    vms.box("up", "web")
    vms.box("up", "other")
    value = read_json(vms, "web", "--diff", "other", "-o", "json", status=2)
    schema = json.loads((SCHEMAS / "security-diff.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(value)
    subjects = {each["subject"] for each in value["differences"]}
    assert subjects == {
        "limits.memory_bytes",
        "limits.memory_and_swap_bytes",
        "limits.rlimits.RLIMIT_FSIZE",
    }
    assert {"uid_map", "gid_map", "cgroup", "open_files"} <= set(value["own"])
    said = vms.box("inspect", "web", "--diff", "other", status=2).stdout.decode()
    assert "3 differences" in said
    vms.box("inspect", "web", "--diff", "web", status=125)


def test_a_name_without_a_sandbox_and_one_without_an_image(vms: Live) -> None:
    done = vms.box("inspect", "nobody", "--security-report", status=125)
    assert b"There is no sandbox nobody" in done.stderr
    vms.declare("fresh")
    done = vms.box("inspect", "fresh", "--security-report", status=125)
    assert b"box build fresh" in done.stderr
