from __future__ import annotations

import base64
import itertools
import json
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

from reconciler.vmm import qemu
from reconciler.vmm.qemu import Descriptors, Files, Machine
from reconciler.vmm.qmp import Qmp, QmpError
from tests.vmm.peer import Peer, connected

MACHINE = Machine(
    "x86_64", "tcg", cpus=2, ram_mib=256, data_bytes=16 << 20, readonly=False, tsc_khz=9
)
FILES = Files("/kernel", "/initrd", "/root.img")
Request = dict[str, Any]


def argv_of(machine: Machine = MACHINE, *, incoming: bool = False) -> list[str]:
    descriptors = Descriptors(qmp=3, ports=range(4, 20))
    return qemu.command_line(
        "/usr/bin/qemu", machine, FILES, descriptors, firmware="/firmware", incoming=incoming
    )


def after(argv: list[str], option: str) -> list[str]:
    return [value for word, value in itertools.pairwise(argv) if word == option]


def test_what_the_host_cannot_write_is_an_error_in_the_guest_and_stops_no_vm() -> None:
    data = [value for value in after(argv_of(), "-device") if "drive=data" in value]
    assert data == ["virtio-blk-device,drive=data,serial=data,werror=report,rerror=report"]


def test_the_command_line_names_no_path_but_those_of_the_jail() -> None:
    words = " ".join(argv_of())
    paths = {word for word in words.replace('"', " ").replace(",", " ").split() if word[0] == "/"}
    assert paths == {"/usr/bin/qemu", "/firmware", "/kernel", "/initrd", "/root.img"}


def test_every_port_has_its_descriptor_and_name() -> None:
    argv = argv_of()
    assert "socket,id=port0,fd=4,server=on,wait=off" in after(argv, "-chardev")
    assert "virtserialport,chardev=port15,name=box.15" in after(argv, "-device")
    assert sum("virtserialport" in each for each in after(argv, "-device")) == qemu.AGENT_PORTS
    # Port 0 of a virtio-serial device is for consoles, so one more than we use.
    assert "virtio-serial-device,max_ports=17" in after(argv, "-device")


def test_the_root_is_read_only_and_data_is_an_empty_node_of_its_size() -> None:
    root, empty, data = (json.loads(each) for each in after(argv_of(), "-blockdev"))
    assert root["read-only"]
    assert root["file"]["read-only"]
    assert (empty["driver"], empty["size"]) == ("null-co", 16 << 20)
    assert (data["driver"], data["file"]) == ("raw", empty["node-name"])


def test_qemus_own_sandbox_denies_everything_it_can() -> None:
    (sandbox,) = after(argv_of(), "-sandbox")
    assert sandbox == "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
    assert "-nodefaults" in argv_of()
    assert "-no-user-config" in argv_of()


def test_only_a_restored_vm_waits_for_its_state() -> None:
    assert "-incoming" not in argv_of()
    assert after(argv_of(incoming=True), "-incoming") == ["defer"]


def test_the_accelerator_decides_cpu_and_clock() -> None:
    kvm = replace(MACHINE, accelerator="kvm")
    assert after(argv_of(kvm), "-accel") == ["kvm"]
    assert after(argv_of(kvm), "-cpu") == ["host"]
    assert "tsc_early_khz" not in qemu.kernel_command_line(kvm)
    assert after(argv_of(), "-accel") == [f"tcg,tb-size={qemu.TRANSLATION_CACHE_MIB}"]
    assert "tsc_early_khz=9 " in qemu.kernel_command_line(MACHINE)


def test_the_kernel_is_told_of_a_read_only_root_only_when_it_is_one() -> None:
    assert "box.readonly=1" not in qemu.kernel_command_line(MACHINE)
    assert "box.readonly=1" in qemu.kernel_command_line(replace(MACHINE, readonly=True))


def test_arm_has_its_own_machine_and_console() -> None:
    arm = replace(MACHINE, arch="aarch64")
    assert after(argv_of(arm), "-machine")[0].startswith("virt,")
    assert qemu.kernel_command_line(arm).startswith("console=ttyAMA0")
    assert "tsc" not in qemu.kernel_command_line(arm)
    assert qemu.binary_name("aarch64") == "qemu-system-aarch64"


def test_everything_of_a_machine_is_in_its_key() -> None:
    changed = [
        replace(MACHINE, arch="aarch64"),
        replace(MACHINE, accelerator="kvm"),
        replace(MACHINE, cpus=1),
        replace(MACHINE, ram_mib=512),
        replace(MACHINE, data_bytes=32 << 20),
        replace(MACHINE, readonly=True),
        replace(MACHINE, root_fstype="squashfs"),
        replace(MACHINE, tsc_khz=10),
    ]
    keys = [json.dumps(each.key(), sort_keys=True) for each in (MACHINE, *changed)]
    assert len(set(keys)) == len(keys) == len(MACHINE.key()) + 1


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
        qemu.save(qmp, state.fileno(), timeout_seconds=5)
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
            qemu.save(qmp, state.fileno(), timeout_seconds=0.3)
        assert time.monotonic() - before < 5


@pytest.mark.parametrize("said", ["%%%", 5, None, {"a": 1}, "abc"])
def test_a_console_that_is_none(said: object) -> None:
    def answer(peer: Peer, _request: Request) -> None:
        peer.say({"return": said})

    with connected(answer) as (qmp, _), pytest.raises(QmpError, match="no console"):
        qemu.console(qmp)


def test_a_console_is_bytes() -> None:
    def answer(peer: Peer, _request: Request) -> None:
        peer.say({"return": base64.b64encode(b"\x1b[0m\xff").decode()})

    with connected(answer) as (qmp, _):
        assert qemu.console(qmp) == b"\x1b[0m\xff"


@pytest.mark.parametrize("said", [[], "x", None, {}, {"fdset-id": "../../etc"}])
def test_what_the_vmm_says_of_its_descriptors_is_not_believed(tmp_path: Path, said: object) -> None:
    def answer(peer: Peer, _request: Request) -> None:
        peer.say({"return": said})

    disk = tmp_path / "disk"
    disk.write_bytes(b"")
    with disk.open("r+b") as stream, connected(answer) as (qmp, peer):
        qemu.attach_data(qmp, stream.fileno())
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
            qemu.attach_data(qmp, stream.fileno())
        names = {each["node-name"]: each for each in qmp.execute("query-named-block-nodes")}
        assert "data-empty" not in names
        assert names["data"]["drv"] == "raw"
        assert names["data"]["image"]["virtual-size"] == 1 << 20
        with (
            disk.open("r+b") as stream,
            real_vmm(*words, machine=machine) as other,
            pytest.raises(QmpError, match="lock"),
        ):
            qemu.attach_data(other, stream.fileno())


@pytest.mark.vm
def test_a_real_qemu_saves_and_restores(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with real_vmm() as qmp, state.open("wb") as stream:
        qemu.save(qmp, stream.fileno(), timeout_seconds=30)
    assert state.stat().st_size > 0
    with real_vmm("-incoming", "defer") as qmp, state.open("rb") as stream:
        qemu.restore(qmp, stream.fileno(), timeout_seconds=30)
        qmp.execute("cont")
        assert qmp.execute("query-status")["running"]


@pytest.mark.vm
def test_a_real_qemu_refuses_a_torn_state(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with real_vmm() as qmp, state.open("wb") as stream:
        qemu.save(qmp, stream.fileno(), timeout_seconds=30)
    os.truncate(state, 16)
    with (
        real_vmm("-incoming", "defer") as qmp,
        state.open("rb") as stream,
        pytest.raises(QmpError),
    ):
        qemu.restore(qmp, stream.fileno(), timeout_seconds=30)


@pytest.mark.vm
def test_a_real_qemus_console_ring() -> None:
    size = qemu.CONSOLE_BYTES
    with real_vmm("-chardev", f"ringbuf,id=console,size={size}") as qmp:
        text = "x" * size + "the end"
        qmp.execute("ringbuf-write", {"device": "console", "data": text})
        assert qemu.console(qmp) == text.encode()[-size:]
