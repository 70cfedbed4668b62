"""What comes from the distribution: which programs, in which packages, by which commands."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reconciler.backends import runtime, vmm_files
from reconciler.errors import Missing
from reconciler.guest import build
from reconciler.images import busybox
from reconciler.linux import cgroups
from reconciler.linux.process import find_program
from reconciler.vmm import qemu

_APT_LISTS = Path("/var/lib/apt/lists")
_DPKG_UPDATES = Path("/var/lib/dpkg/updates")
_APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=3")
_APT_INSTALL = (*_APT, "-y", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0")
_DNF = ("dnf", "-q", "-y", "--setopt=install_weak_deps=False")


@dataclass(frozen=True)
class Part:
    """A part of the host: the package that brings it, under apt and under dnf."""

    what: str
    apt: str
    dnf: str
    present: Callable[[], bool]


def missing_parts(uid: int) -> tuple[Part, ...]:
    """The parts that sandboxes of `uid` use and this host does not have."""
    return tuple(part for part in _parts(uid, os.uname().machine) if not part.present())


def _parts(uid: int, arch: str) -> Iterator[Part]:
    system = ("qemu-system-arm", "qemu-system-aarch64-core")
    if arch == "x86_64":
        system = ("qemu-system-x86", "qemu-system-x86-core")
    yield Part("QEMU, the VMM", *system, lambda: bool(find_program(qemu.binary_name(arch))))
    firmware = ("seabios", "seabios-bin") if arch == "x86_64" else ("ipxe-qemu", "ipxe-roms-qemu")
    yield Part("its firmware", *firmware, lambda: bool(vmm_files.firmware_files(arch)))
    # crun does not start where both versions of cgroups are mounted.
    name = "runc" if cgroups.detect().kind == "hybrid" else "crun"
    yield Part("an OCI runtime, which makes the jail", name, name, _has_runtime)
    if uid != 0:
        yield _program("newuidmap", "uidmap", "shadow-utils", "maps subordinate IDs")
    yield _program("usermod", "passwd", "shadow-utils", "gives out subordinate IDs")
    yield _program("mkfs.erofs", "erofs-utils", "erofs-utils", "makes root images")
    yield _program("sqfstar", "squashfs-tools", "squashfs-tools", "makes root images of OCI images")
    yield _program("mke2fs", "e2fsprogs", "e2fsprogs", "makes /data disks")
    yield Part("a static busybox, for builtin:busybox", "busybox-static", "busybox", _has_busybox)
    for packer in ("lz4", "zstd"):
        yield _program(packer, packer, packer, "unpacks guest kernels")
    if find_program("apt-get") is None:
        # `dnf download` is a plugin; a kernel package is unpacked by cpio.
        yield _program("cpio", "cpio", "cpio", "unpacks packages")
    yield Part("a C compiler, for the guest's agent", "musl-tools", "musl-gcc", _agent_is_covered)


def _program(name: str, apt: str, dnf: str, use: str) -> Part:
    return Part(f"{name}, which {use}", apt, dnf, lambda: find_program(name) is not None)


def _has_runtime() -> bool:
    try:
        runtime.find_runtime()
    except Missing:
        return False
    return True


def _has_busybox() -> bool:
    try:
        busybox.find_busybox()
    except Missing:
        return False
    return True


def _agent_is_covered() -> bool:
    arch = build.host_architecture()
    return build.built_agent(arch) is not None or build.has_compiler(arch)


@dataclass(frozen=True)
class PackageManager:
    """How packages are got: `repair` first, where an earlier run was killed half-way.

    `download` may be broken off at any time, `install` should not be.
    """

    name: str
    refresh: tuple[str, ...]
    repair: tuple[tuple[str, ...], ...]
    download: tuple[str, ...]
    install: tuple[str, ...]

    def names(self, parts: tuple[Part, ...]) -> tuple[str, ...]:
        """The packages of these parts, each once."""
        if self.name == "apt-get":
            return tuple(dict.fromkeys(part.apt for part in parts))
        names = [part.dnf for part in parts]
        return tuple(dict.fromkeys([*names, "dnf-command(download)"]))

    def to_paste(self, packages: tuple[str, ...]) -> tuple[str, ...]:
        """The plain command that installs `packages`, for a person to run."""
        if self.name == "apt-get":
            return ("apt-get", "install", "-y", "--no-install-recommends", *packages)
        return ("dnf", "install", *packages)


def find_manager() -> PackageManager | None:
    """This host's package manager; None when box knows none of it."""
    if find_program("apt-get") is not None:
        repair = (("dpkg", "--configure", "-a"),) if _dpkg_was_killed() else ()
        return PackageManager(
            "apt-get",
            (*_APT, "update"),
            repair,
            (*_APT_INSTALL, "--download-only", "install"),
            (*_APT_INSTALL, "install"),
        )
    if find_program("dnf") is not None:
        return PackageManager(
            "dnf",
            (*_DNF, "makecache"),
            (),
            (*_DNF, "install", "--downloadonly"),
            (*_DNF, "install"),
        )
    return None


def knows_packages(manager: PackageManager) -> bool:
    """Whether there are package lists at all. Only apt does without until it is told to update."""
    return manager.name != "apt-get" or any(_APT_LISTS.glob("*_Packages*"))


def _dpkg_was_killed() -> bool:
    return _DPKG_UPDATES.is_dir() and any(_DPKG_UPDATES.iterdir())
