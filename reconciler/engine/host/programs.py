"""The programs and files that a sandbox is made of, each used once."""

from __future__ import annotations

from pathlib import Path

from reconciler.backends import runtime, vmm_files
from reconciler.engine.host.check import Seen, failed, ok
from reconciler.engine.parts import Progress
from reconciler.guest import build
from reconciler.images import busybox, filesystem, kernel
from reconciler.images.scratch import scratch
from reconciler.linux import cgroups, process
from reconciler.vmm import qemu

_TRY_SECONDS = 30.0
_LINE = 120


def try_runtime(_home: Path) -> Seen:
    """The OCI runtime that starts jails runs at all. Raises Missing without one."""
    chosen = runtime.find_runtime()
    return ok(f"{chosen.path}: {_version(chosen.path)}, cgroups {cgroups.detect().kind}")


def try_qemu(home: Path) -> Seen:
    """QEMU has the machine that guests are given. Raises Missing without QEMU."""
    arch = build.host_architecture()
    found = vmm_files.find_vmm_files(home, arch)
    listed = process.run([found.binary, "-machine", "help"], timeout_seconds=_TRY_SECONDS).stdout
    wanted = "microvm" if arch == "x86_64" else "virt"
    if not any(line.split()[:1] == [wanted.encode()] for line in listed.splitlines()):
        fix = f"install your distribution's own {qemu.binary_name(arch)}"
        return failed(f"{found.binary} has no machine type {wanted}", fix)
    firmware = " ".join(path.name for path in found.firmware)
    return ok(f"{_version(found.binary)}, firmware {firmware}")


def _version(program: Path) -> str:
    said = process.run([program, "--version"], timeout_seconds=_TRY_SECONDS).stdout
    return said.decode(errors="replace").partition("\n")[0][:_LINE]


def try_kernel(home: Path) -> Seen:
    """There is a kernel for guests. Raises Missing with what brings one."""
    found = kernel.find_kernel(home)
    return ok(f"{found.release} ({found.source})")


def try_agent(progress: Progress) -> Seen:
    """The guest's agent is of this version's sources; compiled if need be. Raises BoxError."""
    if build.built_agent(build.host_architecture()) is None:
        progress("compiling the guest's agent")
    return ok(str(build.find_agent()))


def try_images(home: Path) -> Seen:
    """A root image and an empty one for /data can be made. Raises BoxError, OSError."""
    program = busybox.find_busybox()
    with scratch(home) as directory:
        tree = directory / "tree"
        tree.mkdir()
        made = filesystem.make_from_tree(tree, directory)
    process.require_program("mke2fs", "e2fsprogs")
    return ok(f"made an {made.fstype} image; busybox is {program}")
