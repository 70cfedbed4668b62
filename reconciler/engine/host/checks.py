"""The parts that sandboxes rest on, each tried for real."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reconciler.backends import runtime, vmm_files
from reconciler.confinement.policy import MIB
from reconciler.engine import accelerator, admission, slots
from reconciler.engine.host import needs
from reconciler.engine.host.namespaces import check_namespaces
from reconciler.engine.host.need import own_account
from reconciler.errors import BoxError, Missing
from reconciler.guest import build
from reconciler.images import busybox, filesystem, kernel
from reconciler.images.scratch import scratch
from reconciler.linux import cgroups, delegation, process, subids
from reconciler.vmm import qemu

_TRY_SECONDS = 30.0
_LEAST_MEMORY_MIB = 512
_LEAST_DISK_MIB = 1024


@dataclass(frozen=True)
class Check:
    """How one part does: `found` is what was seen, `fix` what to do when it does not work."""

    name: str
    works: bool
    found: str
    fix: str | None


def check_host(home: Path) -> tuple[Check, ...]:
    """Try every part; each costs well under a second, but the first compiling of the agent."""
    return tuple(_try(name, part, home) for name, part in _PARTS)


def _try(name: str, part: Callable[[Path], str], home: Path) -> Check:
    try:
        return Check(name, works=True, found=part(home), fix=None)
    except BoxError as error:
        found = "; ".join([error.brief, *(error.details or "").splitlines()])
        return Check(name, works=False, found=found, fix=error.hint or "box quickstart")
    except OSError as error:
        return Check(name, works=False, found=f"{error.filename}: {error.strerror}", fix=None)


def _runtime(_home: Path) -> str:
    chosen = runtime.find_runtime()
    said = process.run([chosen.path, "--version"], timeout_seconds=_TRY_SECONDS).stdout.decode()
    return f"{said.splitlines()[0]}, cgroups {cgroups.detect().kind}"


def _qemu(home: Path) -> str:
    found = vmm_files.find_vmm_files(home, build.host_architecture())
    said = process.run([found.binary, "--version"], timeout_seconds=_TRY_SECONDS).stdout.decode()
    listed = process.run([found.binary, "-machine", "help"], timeout_seconds=_TRY_SECONDS).stdout
    wanted = "microvm" if build.host_architecture() == "x86_64" else "virt"
    if not any(line.split()[:1] == [wanted.encode()] for line in listed.splitlines()):
        raise Missing(f"{found.binary} has no machine type {wanted}.", hint=_qemu_fix())
    return f"{said.splitlines()[0]}, firmware {' '.join(path.name for path in found.firmware)}"


def _qemu_fix() -> str:
    return f"install your distribution's own {qemu.binary_name(build.host_architecture())}"


def _kernel(home: Path) -> str:
    found = kernel.find_kernel(home)
    return f"{found.release} ({found.source})"


def _agent(_home: Path) -> str:
    return str(build.find_agent())


def _images(home: Path) -> str:
    program = busybox.find_busybox()
    with scratch(home) as directory:
        tree = directory / "tree"
        tree.mkdir()
        made = filesystem.make_from_tree(tree, directory)
        process.require_program("mke2fs", "e2fsprogs")
        return f"made an {made.fstype} image; busybox is {program}"


def _namespaces(_home: Path) -> str:
    return f"made {check_namespaces()}"


def _slots(_home: Path) -> str:
    account = own_account(os.getuid(), os.getgid())
    held = {slot.uid_base for slot in slots.held().values()}
    usable = needs.usable_slots(account)
    if not usable:
        fix = subids.usermod_line(subids.read_tables(), account.name)
        raise Missing(f"{account.name} has no subordinate IDs for strict sandboxes.", hint=fix)
    return f"slots for strict sandboxes: {usable}, held: {len(held)}"


def _cgroups(_home: Path) -> str:
    chosen = runtime.find_runtime()
    runtime.ensure_delegation(chosen)
    if chosen.systemd:
        return "made by systemd"
    parent = delegation.parent_of(os.getuid())
    problem = delegation.probe_delegation(parent)
    if problem is not None:
        raise Missing("No cgroup can be made.", details=problem)
    return f"made and removed one below {parent}"


def _accelerator(home: Path) -> str:
    tried = ("strict",) if os.getuid() == 0 else ("strict", "standard")
    return ", ".join(f"{isolation}: {_accelerated(home, isolation)}" for isolation in tried)


def _accelerated(home: Path, isolation: str) -> str:
    known = accelerator.remembered(home, isolation)
    if known is None:
        return "KVM not tried yet"
    if known == accelerator.KVM:
        return "KVM"
    return f"software emulation ({accelerator.reason(home, isolation)})"


def _memory(_home: Path) -> str:
    available = admission.available_mib()
    if available < _LEAST_MEMORY_MIB:
        raise Missing(
            f"{available} MiB of memory are available, the smallest VM needs {_LEAST_MEMORY_MIB}.",
            hint="end something, or stop a sandbox: box down NAME",
        )
    return f"{available} MiB available"


def _disk(home: Path) -> str:
    free = shutil.disk_usage(home).free // MIB
    if free < _LEAST_DISK_MIB:
        raise Missing(
            f"{free} MiB are free below {home}; snapshots and images need {_LEAST_DISK_MIB}.",
            hint=f"free some disk space: du -sh {shlex.quote(str(home))}/*",
        )
    return f"{free} MiB free below {home}"


_PARTS: tuple[tuple[str, Callable[[Path], str]], ...] = (
    ("runtime", _runtime),
    ("qemu", _qemu),
    ("kernel", _kernel),
    ("agent", _agent),
    ("images", _images),
    ("namespaces", _namespaces),
    ("subordinate IDs", _slots),
    ("cgroups", _cgroups),
    ("accelerator", _accelerator),
    ("memory", _memory),
    ("disk", _disk),
)
