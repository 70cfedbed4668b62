"""Machines that are restored: what copies of one snapshot share, and how long a snapshot stays."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from dataclasses import dataclass

import pytest

from reconciler.engine import observe, records, snapshots
from reconciler.guest import protocol
from tests.live import DATA, SMALL, Live, until

pytestmark = [pytest.mark.vm, pytest.mark.root]

ASKED = """
head -c 64 /dev/urandom | od -An -v -tx1 | tr -d ' \\n'; echo
cat /etc/machine-id /proc/sys/kernel/random/boot_id; hostname
while read -r line; do
    adjtimex | awk '$1 ~ /tv_sec:$/ {s = $2} $1 ~ /tv_usec:$/ {printf "%s.%06d\\n", s, $2}'
done
"""
BUILT = SMALL + DATA + "state: built\n"
STOPPED = SMALL + DATA + "state: stopped\n"


@dataclass
class Copy:
    """A machine that answers on its command's streams."""

    sandbox: str
    child: subprocess.Popen[bytes]

    def line(self) -> str:
        assert self.child.stdout is not None
        return self.child.stdout.readline().decode().strip()

    def off_by(self) -> float:
        """Ask for the guest's time: by how much it is outside of what the host's was meanwhile."""
        assert self.child.stdin is not None
        before = time.time()
        self.child.stdin.write(b"\n")
        self.child.stdin.flush()
        guest = float(self.line())
        return max(before - guest, guest - time.time(), 0.0)


def copy(vms: Live, sandbox: str) -> Copy:
    words = ("run", "--no-data", sandbox, "--", "sh", "-c", ASKED)
    return Copy(sandbox, vms.start(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE))


def key_of(vms: Live, sandbox: str) -> str:
    key: str = json.loads((vms.home / "sandboxes" / sandbox / "built.json").read_text())["snapshot"]
    return key


def test_eight_copies_of_one_snapshot_at_once_share_nothing_they_must_not(vms: Live) -> None:
    for name in ("web", "twin"):
        vms.declare(name, BUILT)
    vms.box("sync", str(vms.folder))
    key = key_of(vms, "web")
    copies = [copy(vms, name) for name in ("web", "twin") * 4]
    said = [(each.sandbox, each.line(), each.line(), each.line(), each.line()) for each in copies]
    sandboxes, randoms, machine_ids, boot_ids, hostnames = zip(*said, strict=True)
    # One boot of one kernel: that they are copies is what gives the rest its meaning.
    assert len(set(boot_ids)) == 1
    running = list(records.vm_records(vms.home))
    assert [vm.snapshot for vm in running] == [key] * 8

    pieces = [random[at : at + 16] for random in randoms for at in range(0, 128, 16)]
    assert [len(random) for random in randoms] == [128] * 8
    assert len(set(pieces)) == 64
    tokens = {bytes.fromhex(vm.token) for vm in running}
    assert len(tokens | {protocol.UNCLAIMED_TOKEN}) == 9
    assert len({(vm.identity and vm.identity.pid) for vm in running}) == 8
    assert hostnames == sandboxes
    assert len(set(zip(sandboxes, machine_ids, strict=True))) == len(set(machine_ids)) == 2
    assert max(each.off_by() for each in copies) < 1.0

    for vm in running:
        facts = observe.read_facts(vms.home, vm)
        assert facts
        assert [fact for fact in facts if fact.failed] == []
    for each in copies:
        each.child.communicate(timeout=60)
    assert [each.child.returncode for each in copies] == [0] * 8
    assert vms.leftovers() == []


def test_a_snapshot_goes_when_its_sandbox_would_use_another(vms: Live) -> None:
    vms.declare("web")
    vms.box("sync", str(vms.folder))
    old = key_of(vms, "web")
    assert old in snapshots.keys(vms.home)
    vms.declare("web", SMALL + DATA + "readonly: true\n")
    vms.box("sync", str(vms.folder))
    assert snapshots.keys(vms.home) == {key_of(vms, "web")} != {old}
    assert "Collected" in [event["reason"] for event in vms.events("web")]
    assert b"booting" not in vms.box("run", "web", "--no-data", "--", "true").stderr
    vms.box("destroy", "web")
    assert snapshots.keys(vms.home) == frozenset()


def test_a_snapshot_that_a_running_machine_came_from_stays(vms: Live) -> None:
    vms.declare("web", STOPPED)
    vms.box("build", "web")
    old = key_of(vms, "web")
    child = vms.start("run", "web", "--no-data", "--", "sleep", "60")
    until(lambda: any(vm.identity for vm in records.vm_records(vms.home, "web")))
    vms.declare("web", STOPPED + "readonly: true\n")
    vms.box("sync", str(vms.folder))
    assert old in snapshots.keys(vms.home)
    child.send_signal(signal.SIGTERM)
    child.wait(30)
    vms.declare("web", STOPPED + "readonly: true\ntimeout_seconds: 5\n")
    vms.box("sync", str(vms.folder))
    assert old not in snapshots.keys(vms.home)


def test_a_snapshot_that_another_sandbox_uses_stays(vms: Live) -> None:
    for name in ("web", "twin"):
        vms.declare(name, BUILT)
    vms.box("sync", str(vms.folder))
    vms.box("destroy", "web")
    assert snapshots.keys(vms.home) == {key_of(vms, "twin")}
