from __future__ import annotations

import json
from dataclasses import replace

from reconciler.vmm import qemu
from tests.vmm.argv import MACHINE, after, argv_of


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
