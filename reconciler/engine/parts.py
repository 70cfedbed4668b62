"""What a VM of a sandbox is made of on this host, found or built, and its fingerprints."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.backends import runtime, vmm_files
from reconciler.backends.runtime import Runtime
from reconciler.backends.vmm_files import VmmFiles
from reconciler.engine import contact
from reconciler.engine.accelerator import EMULATION
from reconciler.engine.spec import Spec
from reconciler.guest.build import find_agent
from reconciler.images import fingerprint, initrd, kernel, rootfs
from reconciler.images.base import Kind, resolve_base
from reconciler.images.busybox import find_busybox
from reconciler.images.kernel import Kernel
from reconciler.images.store import Image
from reconciler.vmm import qemu
from reconciler.vmm.qemu import Machine

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Parts:
    """Everything that goes into a VM. `fingerprint` is of what decides the kernel boundary,
    `boundary` what tells that these files are still the same."""

    runtime: Runtime
    files: VmmFiles
    kernel: Kernel
    initrd: Path
    image: Image
    fingerprint: str
    boundary: Mapping[str, str]

    def machine(self, spec: Spec, accelerator: str, tsc_khz: int) -> Machine:
        """The machine that `spec` asks for; `tsc_khz` matters to emulation only."""
        return Machine(
            arch=os.uname().machine,
            accelerator=accelerator,
            cpus=spec.cpus,
            ram_mib=spec.ram_mib,
            data_bytes=spec.data_bytes,
            readonly=spec.readonly,
            root_fstype=self.image.fstype,
            tsc_khz=tsc_khz if accelerator == EMULATION else 0,
        )

    def sources(self, home: Path, base: str) -> dict[str, str]:
        """Stamps of all that would change if a VM were put together anew from other things."""
        return contact.stamps((*map(Path, self.boundary), *_origins(home, base)))

    def snapshot_key(self, machine: Machine) -> str:
        """Names the snapshot of a booted VM: of all that its state depends on."""
        parts = {
            "fingerprint": self.fingerprint,
            "machine": machine.key(),
            "arguments": qemu.arguments(machine),
            "initrd": self.initrd.name,
            "image": self.image.digest,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def ensure_parts(home: Path, spec: Spec, progress: Progress) -> Parts:
    """Find or build all parts; what is there already costs stats only.

    Raises Missing or Refused with what to do about it.
    """
    chosen = runtime.find_runtime()
    runtime.ensure_delegation(chosen)
    files = vmm_files.find_vmm_files(home, os.uname().machine)
    guest_kernel = kernel.ensure_kernel(home, progress)
    recipe = spec.recipe
    image = rootfs.built_image(home, recipe) or rootfs.build_image(home, recipe, progress)
    return _put_together(home, spec, chosen, files, guest_kernel, image)


def found_parts(home: Path, spec: Spec) -> Parts | None:
    """All parts as a start would find them now; None when the image has yet to be built.

    Stats only, and nothing is fetched. Raises Missing for what is not on this host.
    """
    image = rootfs.built_image(home, spec.recipe)
    if image is None:
        return None
    chosen = runtime.find_runtime()
    files = vmm_files.find_vmm_files(home, os.uname().machine)
    guest_kernel = kernel.find_kernel(home)
    return _put_together(home, spec, chosen, files, guest_kernel, image)


def _put_together(
    home: Path,
    spec: Spec,
    chosen: Runtime,
    files: VmmFiles,
    guest_kernel: Kernel,
    image: Image,
) -> Parts:
    ram_disk = initrd.build_initrd(home, guest_kernel, find_agent())
    # Before they are read: a change in between is noticed by the next command.
    boundary = contact.stamps(_boundary_paths(chosen, files, guest_kernel))
    mark = boundary_fingerprint(home, spec.backend, chosen, files, guest_kernel)
    return Parts(chosen, files, guest_kernel, ram_disk, image, mark, boundary)


def current_fingerprint(home: Path, backend: str) -> str:
    """The fingerprint of what a VM started now would rest on. Stats only."""
    chosen = runtime.find_runtime()
    files = vmm_files.find_vmm_files(home, os.uname().machine)
    return boundary_fingerprint(home, backend, chosen, files, kernel.find_kernel(home))


def boundary_fingerprint(
    home: Path, backend: str, chosen: Runtime, files: VmmFiles, guest_kernel: Kernel
) -> str:
    """Digest of exactly what decides whether a sandbox has a kernel of its own."""
    paths = _boundary_paths(chosen, files, guest_kernel)
    digests = fingerprint.file_digests(home, paths)
    value = {"backend": backend, "files": {str(path): digests[path] for path in paths}}
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _origins(home: Path, base: str) -> tuple[Path, ...]:
    """Where new kernels and images appear; and the base's file, if it is one."""
    reference = resolve_base(base)
    places = (home / "kernels", home / "images" / "refs.json")
    match reference.kind:
        case Kind.BUSYBOX:
            return (*places, find_busybox())
        case Kind.ARCHIVE:
            return (*places, Path(reference.location))
        case Kind.PODMAN:
            return places


def _boundary_paths(chosen: Runtime, files: VmmFiles, guest_kernel: Kernel) -> tuple[Path, ...]:
    return (chosen.path, guest_kernel.path, *files.everything())
