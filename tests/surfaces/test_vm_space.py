"""Guests that fill the host's file system: they stand still before it is full, and go on."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engine import freezing, records
from reconciler.engine.home import disk_of
from reconciler.linux import freezer
from tests.live import DATA, SMALL, Live, until

pytestmark = [pytest.mark.vm, pytest.mark.root]

MIB = 1 << 20
SIZE = 2048 * MIB
FILLER = 1024 * MIB
WIDE = SMALL + "data_size: 4G\n"
FILL = "dd if=/dev/zero of=/data/f bs=1M count=1100 2>&1; sync; echo ended"


@pytest.fixture
def small(vms: Live, tmp_path: Path) -> Iterator[Live]:
    """A home whose disks have 1 GiB of room, of which guests get all but some 200 MiB.

    Not a tmpfs: what lies there counts against the memory of the VMM that wrote it.
    """
    folder, image = vms.home / "sandboxes", tmp_path / "disk"
    folder.mkdir(mode=0o700, exist_ok=True)
    with image.open("wb") as file:
        file.truncate(SIZE)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True, timeout=60)
    mount = ["mount", "-o", "loop", str(image), str(folder)]
    mounted = subprocess.run(mount, check=False, capture_output=True, text=True, timeout=60)
    if mounted.returncode != 0:
        pytest.skip(f"no loop device can be mounted here: {mounted.stderr.strip()}")
    try:
        folder.chmod(0o700)
        (folder / "lost+found").rmdir()
        with (folder / ".filler").open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, FILLER)
        yield vms
        vms.end()
    finally:
        subprocess.run(["umount", folder], check=True, timeout=60)


def free(vms: Live) -> int:
    found = os.statvfs(vms.home / "sandboxes")
    return found.f_bavail * found.f_frsize


class Lowest(threading.Thread):
    """The least room there was, looked at all the time."""

    def __init__(self, vms: Live) -> None:
        super().__init__(daemon=True)
        self._vms = vms
        self._ended = threading.Event()
        self.bytes = SIZE

    def run(self) -> None:
        while not self._ended.wait(0.002):
            self.bytes = min(self.bytes, free(self._vms))

    def stop(self) -> int:
        self._ended.set()
        self.join()
        return self.bytes


def paused(vms: Live, vm: records.VmRecord) -> bool:
    known = freezing.frozen(vms.home, vm)
    return known is not None and known.reason == "NoSpace" and known.stands


def more(vms: Live) -> None:
    """Give the file system room for all that is asked for."""
    (vms.home / "sandboxes" / ".filler").unlink()


def test_a_guest_that_fills_the_host_is_paused_by_the_controller_and_goes_on(
    small: Live,
) -> None:
    small.declare("web", WIDE)
    small.declare("calm", SMALL + DATA)
    watching = small.start("watch", str(small.folder))
    until(lambda: all(up(small, name) for name in ("web", "calm")), 90)
    # Its guest's kernel may write by itself what mkfs left for later: that needs no room any more.
    with disk_of(small.home, "calm").open("r+b") as disk:
        os.posix_fallocate(disk.fileno(), 0, disk.seek(0, os.SEEK_END))
    lowest = Lowest(small)
    lowest.start()
    filling = small.start("exec", "web", "--", "sh", "-c", FILL, stdout=subprocess.PIPE)
    vm = small.vm("web")
    until(lambda: paused(small, vm), 180)
    assert lowest.stop() > 0
    # It takes nothing any more, and others go on.
    blocks = disk_of(small.home, "web").stat().st_blocks
    assert small.box("exec", "calm", "--", "echo", "here").stdout == b"here\n"
    said = small.box("exec", "web", "--", "true", status=125).stderr
    assert b"web is paused: the host's file system is nearly full" in said
    assert b"box thaw web" in said
    until(lambda: condition(small, "Frozen") == ("True", "NoSpace"))
    assert condition(small, "Ready") == ("False", "Frozen")
    planned = small.box("plan", str(small.folder)).stdout
    assert b"NoSpace: since " in planned
    assert planned.endswith(b"nothing to do\n")
    assert condition(small, "Confined") == ("True", "AsPromised")
    report = small.box("inspect", "web", "--security-report").stdout
    assert "until the host's file system has room" in " ".join(report.decode().split())
    assert disk_of(small.home, "web").stat().st_blocks == blocks
    # Nothing else is started that would write, and nothing is replaced that has not written yet.
    small.declare("third", WIDE)
    until(lambda: condition(small, "Ready", "third") == ("False", "Retrying"))
    small.declare("web", WIDE.replace("cpus: 1", "cpus: 2"))
    until(lambda: cpus(small) == 2)
    assert small.vm("web").identity == vm.identity
    small.declare("web", WIDE)
    until(lambda: cpus(small) == 1)
    more(small)
    out, _ = filling.communicate(timeout=120)
    assert out.endswith(b"ended\n")
    assert b"No space" not in out
    assert b"I/O error" not in out
    until(lambda: up(small, "third"))
    assert small.vm("web").identity == vm.identity
    reasons = [event["reason"] for event in small.events("web")]
    assert reasons.count("Paused") == reasons.count("Resumed") == 1
    watching.terminate()
    assert watching.wait(30) == 0


@pytest.mark.parametrize("words", [("up", "web"), ("sync",), ("down", "web")])
def test_what_no_controller_lets_go_on_any_more_a_pass_does(
    small: Live, words: tuple[str, ...]
) -> None:
    small.declare("web", WIDE)
    small.box("build", "web")
    watching = small.start("watch", str(small.folder))
    until(lambda: up(small, "web"), 90)
    filling = small.start("exec", "web", "--", "sh", "-c", FILL, stdout=subprocess.DEVNULL)
    vm = small.vm("web")
    until(lambda: paused(small, vm), 180)
    watching.kill()
    watching.wait(30)
    more(small)
    at = (str(small.folder),) if words == ("sync",) else ()
    said = small.box(*words, *at).stderr
    # Ended in order, it has written out what it had to.
    assert b"may be lost" not in said
    latest = [each["reason"] for each in small.events("web")][::-1]
    assert "Resumed" in latest[: latest.index("Paused")]
    if words[0] != "down":
        assert filling.wait(120) == 0


def test_a_run_pauses_its_own_vm_without_a_controller(small: Live) -> None:
    small.declare("web", WIDE)
    small.box("build", "web")
    lowest = Lowest(small)
    lowest.start()
    filling = small.start(
        "run", "web", "--", "sh", "-c", FILL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    until(lambda: any(paused(small, vm) for vm in records.vm_records(small.home)), 180)
    assert lowest.stop() > 0
    more(small)
    out, err = filling.communicate(timeout=120)
    assert out.endswith(b"ended\n")
    assert b"No space" not in out
    assert b"I/O error" not in out
    assert b"web: paused until there is room: its /data grew by " in err
    assert b"web: goes on: there is room again" in err
    assert small.leftovers() == []


def test_a_paused_run_ends_on_an_interrupt_and_says_what_is_lost(small: Live) -> None:
    small.declare("web", WIDE)
    small.box("build", "web")
    running = small.start("run", "web", "--", "sh", "-c", FILL, stderr=subprocess.PIPE)
    until(lambda: any(paused(small, vm) for vm in records.vm_records(small.home)), 180)
    # The first one is the command's, which cannot hear it.
    while running.poll() is None:
        running.terminate()
        time.sleep(0.5)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 143
    assert b"what it wrote last may be lost" in err
    assert small.leftovers() == []


def up(vms: Live, name: str) -> bool:
    vm = records.vm_record(vms.home, name)
    return (
        vm is not None
        and vm.identity is not None
        and not freezer.is_frozen(freezing.directories(vm))
    )


def cpus(vms: Live) -> int:
    record = records.sandbox_record(vms.home, "web")
    assert record is not None
    return record.spec.cpus


def condition(vms: Live, kind: str, name: str = "web") -> tuple[str, str]:
    value = json.loads(vms.box("status", "-o", "json", str(vms.folder)).stdout)
    (found,) = [each for each in value["sandboxes"] if each["name"] == name]
    for each in found["conditions"]:
        if each["type"] == kind:
            return each["status"], each["reason"]
    return "", ""
