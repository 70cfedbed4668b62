"""The programs and files that a sandbox is made of, each used once."""

from __future__ import annotations

from pathlib import Path

from reconciler.backends import runtime, vmm_files
from reconciler.engine.host.check import Seen, failed, ok
from reconciler.engine.host.trying import START_SECONDS, Tries
from reconciler.engine.parts import Progress
from reconciler.guest import build
from reconciler.images import busybox, filesystem, kernel
from reconciler.images.scratch import scratch
from reconciler.linux import cgroups, process
from reconciler.vmm import qemu

_LINE = 120


def try_runtime(tries: Tries) -> Seen:
    """The OCI runtime that starts jails runs at all. Raises Missing without one."""
    chosen = runtime.find_runtime()
    return ok(f"{chosen.path}: {_version(tries, chosen.path)}, cgroups {cgroups.detect().kind}")


def try_qemu(home: Path, tries: Tries) -> Seen:
    """QEMU has the machine that guests are given. Raises Missing without QEMU."""
    arch = build.host_architecture()
    found = vmm_files.find_vmm_files(home, arch)
    listed = tries.run(found.binary, "-machine", "help").stdout
    wanted = "microvm" if arch == "x86_64" else "virt"
    if not any(line.split()[:1] == [wanted.encode()] for line in listed.splitlines()):
        fix = f"install your distribution's own {qemu.binary_name(arch)}"
        return failed(f"{found.binary} has no machine type {wanted}", fix)
    firmware = " ".join(path.name for path in found.firmware)
    return ok(f"{_version(tries, found.binary)}, firmware {firmware}")


def _version(tries: Tries, program: Path) -> str:
    said = tries.run(program, "--version").stdout
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


def try_images(home: Path, tries: Tries) -> Seen:
    """A root image and an empty one for /data can be made. Raises BoxError, OSError."""
    program = busybox.find_busybox()
    with scratch(home) as directory:
        tree = directory / "tree"
        tree.mkdir()
        with tries.on(filesystem.tree_program(), START_SECONDS):
            made = filesystem.make_from_tree(tree, directory, timeout_seconds=START_SECONDS)
    process.require_program("mke2fs", "e2fsprogs")
    return ok(f"made an {made.fstype} image; busybox is {program}")
