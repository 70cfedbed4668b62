"""QEMU: the command line of a microVM.

The command line names no socket, no disk and no secret: sockets are inherited listening
descriptors, the data disk arrives over QMP when the VM is claimed, and the token goes to the
guest's agent over its port. What is left in argv may be read by every user of the host.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from reconciler.vmm import control

AGENT_PORTS = 16
"""Virtio-serial ports of a VM: QEMU serves one client a port (measured in ARCHITECTURE.md)."""

_FEW_PORTS = 4
_FEW_PORTS_BELOW_MIB = 256
"""The guest's driver fills each port's queue with 1024 pages: 16 of them are more than half of the
memory of the smallest guests."""

TRANSLATION_CACHE_MIB = 64
"""Bound of the emulator's translation cache: its default may grow to 1 GiB."""


@dataclass(frozen=True)
class Machine:
    """All of a VM that its snapshot depends on, apart from the files it boots."""

    arch: str
    """`x86_64` or `aarch64`."""
    accelerator: str
    """`kvm` or `tcg` (software emulation)."""
    cpus: int
    ram_mib: int
    data_bytes: int
    """Size of the /data disk; the device exists from the start, on an empty node."""
    readonly: bool
    """The guest's root is the image itself, with no writable layer."""
    root_fstype: str = "erofs"
    tsc_khz: int = 0
    """Rate of the host's time stamp counter: emulated x86 guests see it but cannot measure it."""

    @property
    def ports(self) -> int:
        """How many agent ports the VM has, and so how many commands run in it at once."""
        return AGENT_PORTS if self.ram_mib >= _FEW_PORTS_BELOW_MIB else _FEW_PORTS

    def key(self) -> dict[str, object]:
        """Everything above as plain data, for digests."""
        return asdict(self)


@dataclass(frozen=True)
class Files:
    """Paths inside the jail."""

    kernel: str
    initrd: str
    root: str


@dataclass(frozen=True)
class Descriptors:
    """Numbers of inherited descriptors inside the VMM: listening Unix sockets."""

    qmp: int
    ports: Sequence[int]


def binary_name(arch: str) -> str:
    """Name of the system emulator's program."""
    return f"qemu-system-{arch}"


def kernel_command_line(machine: Machine) -> str:
    """What the guest kernel is told. Nothing secret: argv is readable by every host user."""
    words = ["quiet", "loglevel=1", "reboot=t", "panic=-1", "random.trust_cpu=on"]
    if machine.arch == "x86_64":
        words.insert(0, "console=ttyS0")
        if machine.accelerator == "tcg":
            # Without these the kernel waits for ever for a clock to calibrate the counter against.
            # lpj is a million ticks a second at 250 Hz; it only has to be there.
            words += [f"tsc_early_khz={machine.tsc_khz}", "tsc=reliable", "lpj=4000000"]
    else:
        words.insert(0, "console=ttyAMA0")
    if machine.readonly:
        words.append("box.readonly=1")
    if machine.ports != AGENT_PORTS:
        words.append(f"box.ports={machine.ports}")
    return " ".join(words)


def command_line(
    binary: str,
    machine: Machine,
    files: Files,
    descriptors: Descriptors,
    *,
    firmware: str,
    incoming: bool,
) -> list[str]:
    """QEMU's argv; `firmware` is the directory of its firmware files.

    With `incoming` it waits, without memory contents, for `restore`; else it boots at once.
    """
    argv = [
        binary,
        "-nodefaults",
        "-no-user-config",
        "-display", "none",
        "-no-reboot",
        "-L", firmware,
        "-machine", _machine(machine),
        "-accel", _accelerator(machine),
        "-cpu", _cpu(machine),
        "-smp", str(machine.cpus),
        "-m", f"{machine.ram_mib}M",
        "-kernel", files.kernel,
        "-initrd", files.initrd,
        "-append", kernel_command_line(machine),
        "-chardev", f"ringbuf,id=console,size={control.CONSOLE_BYTES}",
        "-serial", "chardev:console",
        "-chardev", f"socket,id=qmp,fd={descriptors.qmp},server=on,wait=off",
        "-mon", "chardev=qmp,mode=control",
        *_disks(files, machine),
        *_agent_ports(descriptors.ports),
        "-sandbox",
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
    ]  # fmt: skip
    if incoming:
        argv += ["-incoming", "defer"]
    return argv


def arguments(machine: Machine) -> list[str]:
    """What of the argv follows from `machine` alone: another one cannot load a state of this."""
    nowhere = Files(kernel="", initrd="", root="")
    descriptors = Descriptors(qmp=0, ports=range(machine.ports))
    return command_line("", machine, nowhere, descriptors, firmware="", incoming=False)


def _machine(machine: Machine) -> str:
    # The kernel pipes a core to the host's handler whatever RLIMIT_CORE says (core(5)). And memory
    # that is merged with other guests' tells by the time that a write takes what they hold.
    common = "graphics=off,dump-guest-core=off,mem-merge=off"
    if machine.arch == "x86_64":
        # With acpi=off the guest sees no virtio device unless its kernel was built for it.
        return f"microvm,acpi=on,pcie=off,usb=off,rtc=on,{common}"
    return f"virt,gic-version=max,{common}"


def _accelerator(machine: Machine) -> str:
    if machine.accelerator == "kvm":
        return "kvm"
    return f"tcg,tb-size={TRANSLATION_CACHE_MIB}"


def _cpu(machine: Machine) -> str:
    if machine.accelerator == "kvm":
        return "host"
    if machine.arch == "x86_64":
        # What is fast on a processor and slow in its emulation. With erms and fsrm the guest clears
        # and copies memory by `rep movsb`, one emulated step a byte; with la57 a page walk has five
        # levels. A boot takes a quarter less time without (bench/README.md).
        return "max,-erms,-fsrm,-la57"
    return "max"


def _disks(files: Files, machine: Machine) -> list[str]:
    root = {
        "node-name": "root",
        "driver": "raw",
        "read-only": True,
        "file": {"driver": "file", "filename": files.root, "read-only": True},
    }
    empty = {"node-name": "data-empty", "driver": "null-co", "size": machine.data_bytes}
    data = {"node-name": "data", "driver": "raw", "file": "data-empty"}
    return [
        "-blockdev", json.dumps(root),
        "-blockdev", json.dumps(empty),
        "-blockdev", json.dumps(data),
        "-device", "virtio-blk-device,drive=root,serial=root",
        # A full host is the guest's I/O error; QEMU's default is to stop the VM without a word.
        "-device", "virtio-blk-device,drive=data,serial=data,werror=report,rerror=report",
    ]  # fmt: skip


def _agent_ports(ports: Sequence[int]) -> list[str]:
    argv = ["-device", f"virtio-serial-device,max_ports={len(ports) + 1}"]
    for number, descriptor in enumerate(ports):
        argv += [
            "-chardev",
            f"socket,id=port{number},fd={descriptor},server=on,wait=off",
            "-device",
            f"virtserialport,chardev=port{number},name=box.{number}",
        ]
    return argv
