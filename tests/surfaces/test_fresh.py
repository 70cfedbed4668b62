"""What `box run` says of the end of its VM."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.engine import contact, journal, records, warm
from reconciler.engine.home import disk_of, open_home
from reconciler.engine.records import WARM, SandboxRecord
from reconciler.linux import files, identity
from tests.engine import specs, stuck_vm
from tests.live import Live, until

VM = "web.00000001"
BUILT = specs.spec(state="built", warm=1)


@pytest.fixture
def waiting(box_home: Path, tmp_path: Path) -> Iterator[tuple[Live, subprocess.Popen[bytes]]]:
    """A sandbox with a VM that waits, as its files say; and the process that stands for its VMM."""
    home = open_home()
    record = SandboxRecord("web", BUILT, None, "", None, 0)
    records.keep_sandbox(home, record)
    disk_of(home, "web").write_bytes(b"")
    with subprocess.Popen(["/bin/sleep", "600"], stdin=subprocess.DEVNULL) as vmm:
        try:
            who = identity.identify(vmm.pid)
            assert who is not None
            vm = replace(specs.vm(home, VM, identity=who, of=BUILT), kind=WARM, ready=True)
            records.keep_vm(home, vm)
            vm.directory(home).mkdir(mode=0o700)
            warm.note_sources(vm.directory(home), {})
            (vm.directory(home) / "start.json").write_text("{}")
            warm.note_start(vm.directory(home))
            contact.note_boundary(vm.directory(home), {})
            yield Live(home, tmp_path), vmm
            # Whoever is to fill the pool takes away what is left of the VM, and has its lock.
            with files.locked(home / "sandboxes/web/warm.lock", timeout_seconds=60):
                until(lambda: list((home / "run").iterdir()) == [])
        finally:
            vmm.kill()


@pytest.mark.parametrize("written", [True, False])
def test_a_run_says_so_when_its_guest_did_not_write_data_out(
    waiting: tuple[Live, subprocess.Popen[bytes]], *, written: bool
) -> None:
    box, vmm = waiting
    writing = stuck_vm.WritingOut()
    writing.let()

    def ending(client: socket.socket) -> None:
        # Nobody is to fill the pool anew.
        (box.home / "sandboxes/web/record.json").unlink()
        (writing if written else stuck_vm.refuse)(client)

    with stuck_vm.served(box.home / "run" / VM, ending):
        done = box.box("run", "web", "--", "true", status=stuck_vm.STATUS)
    assert done.stdout == b"done\n"
    told = [event["reason"] for event in journal.read_events(box.home, "web")]
    if written:
        assert (done.stderr, told) == (b"", [])
    else:
        assert b"web: its guest did not write /data out in time" in done.stderr
        assert told == ["NotWrittenOut"]
    # Ended it is either way.
    assert vmm.wait(30) < 0
