"""`box run`: a fresh machine for one command, thrown away after it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time

import pytest

from reconciler.engine import records
from reconciler.linux import identity
from tests.live import DATA, SMALL, Live, until

pytestmark = [pytest.mark.vm, pytest.mark.root]


def test_the_commands_output_and_status_are_the_commands(vms: Live) -> None:
    vms.declare("web")
    done = vms.box("run", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 7", status=7)
    assert done.stdout == b"out\n"
    assert done.stderr.endswith(b"err\n")
    vms.box("run", "web", "--", "sh", "-c", "kill -TERM $$", status=128 + signal.SIGTERM)
    vms.box("run", "web", "--", "/no/such/thing", status=127)
    vms.box("run", "web", "--", "/etc/passwd", status=126)
    vms.box("run", "web", "--timeout", "1", "--", "sleep", "60", status=124)
    assert vms.leftovers() == []


def test_stdin_arrives_to_the_byte(vms: Live) -> None:
    vms.declare("web")
    data = bytes(range(256)) * 4096
    done = vms.box("run", "web", "--", "sha256sum", stdin=data)
    assert done.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_only_data_outlives_the_machine(vms: Live) -> None:
    vms.declare("web")
    vms.box("run", "web", "--", "sh", "-c", "echo kept >/data/f; echo gone >/etc/f")
    done = vms.box("run", "web", "--", "sh", "-c", "cat /data/f; cat /etc/f", status=1)
    assert done.stdout == b"kept\n"


def test_a_read_only_root_cannot_be_written(vms: Live) -> None:
    vms.declare("web", SMALL + DATA + "readonly: true\n")
    script = "echo x >/etc/f; echo x >/tmp/f && echo x >/data/f && cat /tmp/f /data/f"
    done = vms.box("run", "web", "--", "sh", "-c", script)
    assert done.stdout == b"x\nx\n"
    assert b"Read-only file system" in done.stderr


def test_the_guest_has_a_kernel_and_a_name_of_its_own(vms: Live) -> None:
    vms.declare("web")
    script = "cat /proc/sys/kernel/random/boot_id; uname -r; hostname"
    boot_id, release, hostname = vms.box("run", "web", "--", "sh", "-c", script).stdout.split()
    assert boot_id.decode() != identity.boot_id()
    assert release.decode() in {path.name for path in (vms.home / "kernels").iterdir()}
    assert hostname == b"web"


def test_the_environment_is_the_boxfiles_and_the_command_lines(vms: Live) -> None:
    vms.declare("web", SMALL + DATA + "env:\n  A: one two $HOME\n  B: from file\n")
    done = vms.box("run", "web", "--env", "B=given", "--", "sh", "-c", 'echo "$A|$B"')
    assert done.stdout == b"one two $HOME|given\n"


def test_the_smallest_guest_has_room_to_work_in(vms: Live) -> None:
    vms.declare("web", SMALL.replace("ram_mib: 256", "ram_mib: 128") + DATA)
    vms.box("up", "web")
    script = "dd if=/dev/zero of=/tmp/f bs=1M count=16 2>/dev/null && wc -c </tmp/f"
    assert vms.box("exec", "web", "--", "sh", "-c", script).stdout == b"16777216\n"
    calls = [vms.start("exec", "web", "--", "sleep", "1") for _ in range(8)]
    assert [call.wait(60) for call in calls] == [0] * 8
    vms.box("down", "web")


def test_two_at_once_without_data(vms: Live) -> None:
    vms.declare("web")
    vms.box("build", "web")
    first = vms.start("run", "web", "--no-data", "--", "sleep", "30")
    until(lambda: list(records.vm_records(vms.home, "web")))
    vms.box("run", "web", "--no-data", "--", "true")
    first.send_signal(signal.SIGTERM)
    assert first.wait(30) == 128 + signal.SIGTERM
    assert vms.leftovers() == []


def test_data_is_one_machines_at_a_time(vms: Live) -> None:
    vms.declare("web")
    vms.box("up", "web")
    said = vms.box("run", "web", "--", "true", status=125).stderr.decode()
    for part in ("web is up", "/data", str(vms.pid("web")), "hint: ", "--wait", "--no-data"):
        assert part in said
    vms.box("run", "web", "--no-data", "--", "true")
    began = time.monotonic()
    said = vms.box("run", "web", "--wait", "1.5", "--", "true", status=125).stderr.decode()
    assert time.monotonic() - began >= 1.5
    assert "Waited 1.5 s. web is up" in said
    assert "hint: " in said


def holding_data(vms: Live, seconds: int) -> subprocess.Popen[bytes]:
    """A `run` that has /data by now."""
    child = vms.start("run", "web", "--", "sleep", str(seconds))
    until(lambda: any(vm.identity and vm.with_data for vm in records.vm_records(vms.home, "web")))
    return child


def test_a_busy_sandbox_says_whose_command_has_data(vms: Live) -> None:
    vms.declare("web")
    vms.box("build", "web")
    child = holding_data(vms, 60)
    (vm,) = records.vm_records(vms.home, "web")
    assert vm.owner is not None
    said = vms.box("run", "web", "--", "true", status=125).stderr.decode()
    assert f"process {vm.owner.pid}, since {vm.started_at}" in said
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) == 128 + signal.SIGTERM
    assert vms.leftovers() == []


def test_those_who_wait_get_data_one_after_the_other(vms: Live) -> None:
    vms.declare("web")
    vms.box("build", "web")
    child = holding_data(vms, 4)
    line = "echo x >>/data/turns; sleep 0.2"
    waiting = [vms.start("run", "web", "--wait", "100", "--", "sh", "-c", line) for _ in range(3)]
    assert [each.wait(100) for each in (child, *waiting)] == [0] * 4
    assert vms.box("run", "web", "--", "cat", "/data/turns").stdout == b"x\nx\nx\n"
    assert vms.leftovers() == []


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_wait_and_leaves_the_holder_alone(vms: Live, signo: int) -> None:
    vms.declare("web")
    vms.box("up", "web")
    child = vms.start("run", "web", "--wait", "86400", "--", "true", stderr=subprocess.PIPE)
    assert child.stderr is not None
    assert b"waiting for /data: web is up" in child.stderr.readline()
    child.send_signal(signo)
    assert child.wait(10) == 128 + signo
    child.stderr.close()
    assert vms.box("exec", "web", "--", "echo", "up").stdout == b"up\n"
    assert [vm.vm for vm in records.vm_records(vms.home)] == ["web"]


def test_a_wait_outlives_a_holder_whose_command_was_killed(vms: Live) -> None:
    vms.declare("web")
    vms.box("build", "web")
    child = holding_data(vms, 60)
    waiting = vms.start("run", "web", "--wait", "60", "--", "true", stderr=subprocess.PIPE)
    assert waiting.stderr is not None
    assert b"waiting for /data" in waiting.stderr.readline()
    child.kill()
    child.wait()
    assert waiting.wait(30) == 0
    waiting.stderr.close()
    assert vms.leftovers() == []


@pytest.mark.parametrize("delay", [0.15, 0.3, 0.45, 0.6, 0.9])
def test_ctrl_c_leaves_nothing(vms: Live, delay: float) -> None:
    vms.declare("web")
    vms.box("build", "web")
    child = vms.start("run", "web", "--", "sleep", "60", stderr=subprocess.DEVNULL)
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(delay)
    child.send_signal(signal.SIGINT)
    # While Python still loads its modules, the signal itself ends it.
    assert child.wait(30) in (130, -signal.SIGINT)
    assert vms.leftovers() == []


def test_a_killed_command_is_cleaned_up_after_by_the_next(vms: Live) -> None:
    vms.declare("web")
    child = vms.start("run", "web", "--", "sleep", "60")
    until(lambda: any(vm.identity for vm in records.vm_records(vms.home, "web")))
    child.kill()
    child.wait()
    assert vms.leftovers() != []
    vms.box("run", "web", "--", "true")
    assert vms.leftovers() == []


def wrong_snapshots(vms: Live) -> list[str]:
    """The type of each event that says so, of other tests too: the home is shared."""
    return [event["type"] for event in vms.events("web") if event["reason"] == "SnapshotWrong"]


def test_a_snapshot_that_was_damaged_is_made_again(vms: Live) -> None:
    vms.declare("web")
    vms.box("build", "web")
    built = json.loads((vms.home / "sandboxes" / "web" / "built.json").read_text())
    state = vms.home / "snapshots" / built["snapshot"] / "state"
    vms.box("run", "web", "--", "true")
    with state.open("r+b") as stream:
        stream.seek(state.stat().st_size // 2)
        stream.write(b"something else")
    inode = state.stat().st_ino
    before = wrong_snapshots(vms)
    done = vms.box("run", "web", "--", "echo", "ran")
    assert done.stdout == b"ran\n"
    assert b"not what was written" in done.stderr
    assert wrong_snapshots(vms) == [*before, "Warning"]
    assert state.with_name("state.broken").stat().st_ino == inode
    assert state.stat().st_mode & 0o777 == 0o600
    assert b"booting" not in vms.box("run", "web", "--", "true").stderr
    assert vms.leftovers() == []


def test_a_whole_snapshot_that_no_vm_comes_of_is_made_again(vms: Live) -> None:
    vms.declare("web")
    vms.box("build", "web")
    built = json.loads((vms.home / "sandboxes" / "web" / "built.json").read_text())
    state = vms.home / "snapshots" / built["snapshot"] / "state"
    os.truncate(state, state.stat().st_size // 2)
    meta = json.loads(state.with_name("meta.json").read_text())
    meta["sha256"] = hashlib.sha256(state.read_bytes()).hexdigest()
    state.with_name("meta.json").write_text(json.dumps(meta))
    assert b"No VM comes of" in vms.box("run", "web", "--", "true").stderr
    assert b"booting" not in vms.box("run", "web", "--", "true").stderr
    assert vms.leftovers() == []


def test_two_sandboxes_of_one_kind_share_a_snapshot_and_both_are_built(vms: Live) -> None:
    for name in ("web", "twin"):
        vms.declare(name, SMALL + DATA + "state: built\n")
    assert vms.box("sync", str(vms.folder)).stdout.count(b"built") >= 2
    keys = set()
    for name in ("web", "twin"):
        built = (vms.home / "sandboxes" / name / "built.json").read_text()
        keys.add(json.loads(built)["snapshot"])
    assert len(keys) == 1
    vms.box("plan", str(vms.folder), status=0)


def test_standard_is_refused_to_root(vms: Live) -> None:
    vms.declare("web", SMALL.replace("strict", "standard"))
    done = vms.box("run", "web", "--", "true", status=125)
    assert b"strict" in done.stderr
    assert vms.leftovers() == []
