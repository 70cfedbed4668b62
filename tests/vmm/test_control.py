from __future__ import annotations

import base64
import os
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.vmm import control, qemu
from reconciler.vmm.qmp import Qmp, QmpError
from tests.vmm.argv import MACHINE, after, argv_of
from tests.vmm.peer import Peer, connected

Request = dict[str, Any]


def migrating(*statuses: str) -> Any:  # noqa: ANN401 - an answer of the peer's
    def answer(peer: Peer, request: Request) -> None:
        peer.say({"return": {"error-desc": "\x1b disk full"}})
        if request["execute"] in ("migrate", "migrate-incoming"):
            peer.say(*({"event": "MIGRATION", "data": {"status": each}} for each in statuses))

    return answer


def test_a_failed_save_says_why(tmp_path: Path) -> None:
    with (
        (tmp_path / "state").open("wb") as state,
        connected(migrating("setup", "active", "failed")) as (qmp, _),
        pytest.raises(QmpError, match="disk full") as caught,
    ):
        control.save(qmp, state.fileno(), timeout_seconds=60)
    assert "\x1b" not in str(caught.value)


def test_a_save_that_never_ends_is_given_up(tmp_path: Path) -> None:
    def answer(peer: Peer, request: Request) -> None:
        peer.say({"return": {}})
        while request["execute"] == "migrate":
            time.sleep(0.02)
            peer.say({"event": "MIGRATION", "data": {"status": "active"}})

    with (tmp_path / "state").open("wb") as state, connected(answer) as (qmp, _):
        before = time.monotonic()
        with pytest.raises(QmpError, match="in time"):
            control.save(qmp, state.fileno(), timeout_seconds=0.3)
        assert time.monotonic() - before < 30


@pytest.mark.parametrize("said", ["%%%", 5, None, {"a": 1}, "abc"])
def test_a_console_that_is_none(said: object) -> None:
    def answer(peer: Peer, _request: Request) -> None:
        peer.say({"return": said})

    with connected(answer) as (qmp, _), pytest.raises(QmpError, match="no console"):
        control.console(qmp)


def test_a_console_is_bytes() -> None:
    def answer(peer: Peer, _request: Request) -> None:
        peer.say({"return": base64.b64encode(b"\x1b[0m\xff").decode()})

    with connected(answer) as (qmp, _):
        assert control.console(qmp) == b"\x1b[0m\xff"


@pytest.mark.parametrize("said", [[], "x", None, {}, {"fdset-id": "../../etc"}])
def test_what_the_vmm_says_of_its_descriptors_is_not_believed(tmp_path: Path, said: object) -> None:
    def answer(peer: Peer, _request: Request) -> None:
        peer.say({"return": said})

    disk = tmp_path / "disk"
    disk.write_bytes(b"")
    with disk.open("r+b") as stream, connected(answer) as (qmp, peer):
        control.attach_data(qmp, stream.fileno())
    assert peer.inodes == [disk.stat().st_ino]
    added = next(each for each in peer.requests if each["execute"] == "blockdev-add")
    assert added["arguments"]["filename"] == "/dev/fdset/1"


@contextmanager
def real_vmm(*options: str, machine: str = "none") -> Iterator[Qmp]:
    """A real QEMU, by default with a machine that has nothing in it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        monitor = f"socket,id=qmp,fd={theirs.fileno()}"
        program = shutil.which(qemu.binary_name(platform.machine()))
        assert program is not None
        argv = [program, "-S", "-M", machine, "-nodefaults", "-display", "none", "-accel", "tcg"]
        argv += ["-chardev", monitor, "-mon", "chardev=qmp,mode=control", *options]
        child = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        try:
            theirs.close()
            yield Qmp(ours, timeout_seconds=30)
        finally:
            child.kill()
            child.wait(10)


@pytest.mark.vm
def test_a_real_qemu_takes_the_disk_and_locks_it(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with disk.open("wb") as stream:
        stream.truncate(1 << 20)
    nodes = after(argv_of(replace(MACHINE, data_bytes=1 << 20)), "-blockdev")[1:]
    words = [word for node in nodes for word in ("-blockdev", node)]
    # Only a device asks for a lock: a node that nobody uses writes nothing.
    words += ["-device", "virtio-blk-device,drive=data"]
    machine = "microvm" if platform.machine() == "x86_64" else "virt"
    with real_vmm(*words, machine=machine) as qmp:
        with disk.open("r+b") as stream:
            control.attach_data(qmp, stream.fileno())
        names = {each["node-name"]: each for each in qmp.execute("query-named-block-nodes")}
        assert "data-empty" not in names
        assert names["data"]["drv"] == "raw"
        assert names["data"]["image"]["virtual-size"] == 1 << 20
        with (
            disk.open("r+b") as stream,
            real_vmm(*words, machine=machine) as other,
            pytest.raises(QmpError, match="lock"),
        ):
            control.attach_data(other, stream.fileno())


@pytest.mark.vm
def test_a_real_qemu_saves_and_restores(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with real_vmm() as qmp, state.open("wb") as stream:
        control.save(qmp, stream.fileno(), timeout_seconds=30)
    assert state.stat().st_size > 0
    with real_vmm("-incoming", "defer") as qmp, state.open("rb") as stream:
        control.restore(qmp, stream.fileno(), timeout_seconds=30)
        qmp.execute("cont")
        assert qmp.execute("query-status")["running"]


@pytest.mark.vm
def test_a_real_qemu_refuses_a_torn_state(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with real_vmm() as qmp, state.open("wb") as stream:
        control.save(qmp, stream.fileno(), timeout_seconds=30)
    os.truncate(state, 16)
    with (
        real_vmm("-incoming", "defer") as qmp,
        state.open("rb") as stream,
        pytest.raises(QmpError),
    ):
        control.restore(qmp, stream.fileno(), timeout_seconds=30)


@pytest.mark.vm
def test_a_real_qemus_console_ring() -> None:
    size = control.CONSOLE_BYTES
    with real_vmm("-chardev", f"ringbuf,id=console,size={size}") as qmp:
        text = "x" * size + "the end"
        qmp.execute("ringbuf-write", {"device": "console", "data": text})
        assert control.console(qmp) == text.encode()[-size:]


@pytest.mark.vm
def test_a_real_qemus_memory_is_in_no_core_and_merged_with_nobodys() -> None:
    (machine,) = after(argv_of(), "-machine")
    with real_vmm("-m", "96M", machine=machine):
        pid = int(Path("/proc/thread-self/children").read_text().split()[-1])
        flags = [each for size, each in mappings(pid) if size == 96 << 20]
    assert flags
    # "do not dump", "mergeable": proc_pid_smaps(5).
    assert all("dd" in each and "mg" not in each for each in flags)


def mappings(pid: int) -> Iterator[tuple[int, list[str]]]:
    """The size in bytes and the flags of each mapping of a process."""
    size = 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, *words = line.split()
        if name == "VmFlags:":
            yield size, words
        elif not name.endswith(":"):
            begin, end = (int(each, 16) for each in name.split("-"))
            size = end - begin
