"""A command line of QEMU's, and reading one."""

from __future__ import annotations

import itertools

from reconciler.vmm import qemu
from reconciler.vmm.qemu import Descriptors, Files, Machine

MACHINE = Machine(
    "x86_64", "tcg", cpus=2, ram_mib=256, data_bytes=16 << 20, readonly=False, tsc_khz=9
)
FILES = Files("/kernel", "/initrd", "/root.img")


def argv_of(machine: Machine = MACHINE, *, incoming: bool = False) -> list[str]:
    descriptors = Descriptors(qmp=3, ports=range(4, 20))
    return qemu.command_line(
        "/usr/bin/qemu", machine, FILES, descriptors, firmware="/firmware", incoming=incoming
    )


def after(argv: list[str], option: str) -> list[str]:
    return [value for word, value in itertools.pairwise(argv) if word == option]
