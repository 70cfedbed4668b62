"""Which accelerator guests run on here, found by booting one as a start does."""

from __future__ import annotations

from pathlib import Path

from reconciler.backends import runtime, vmm_files
from reconciler.confinement.policy import Isolation
from reconciler.engine import accelerator, launching, slots
from reconciler.engine.host import throwaway
from reconciler.engine.host.check import Seen, finding, not_applicable, ok
from reconciler.engine.host.trying import Tries
from reconciler.engine.parts import Progress
from reconciler.engine.records import ONCE
from reconciler.engine.spec import Spec
from reconciler.engine.stopping import stop_vm
from reconciler.errors import Missing
from reconciler.guest import build
from reconciler.images import kernel
from reconciler.linux.ids import NoSlot

_RAM_MIB = 256


def try_guest(
    home: Path, isolation: Isolation, progress: Progress, tries: Tries, *, boot: bool
) -> Seen:
    """Tell what guests run on; boot one with `boot`, or when that is not known since this boot.

    A boot on KVM is given ten seconds, then the same guest boots in emulation. What it showed is
    remembered for all sandboxes of this isolation. Raises BoxError.
    """
    if boot or accelerator.remembered(home, isolation) is None:
        tries.need(runtime.find_runtime().path)
        try:
            kernel.find_kernel(home)
        except Missing:
            return not_applicable("no guest kernel to try it with")
        tries.need(vmm_files.find_vmm_files(home, build.host_architecture()).binary)
        try:
            progress(f"booting a guest under {isolation}")
            _boot(home, isolation, progress)
        except NoSlot:
            return not_applicable("no slot of subordinate IDs is free to try it with")
    return _remembered(home, isolation)


def _boot(home: Path, isolation: Isolation, progress: Progress) -> None:
    with throwaway.place(home) as name:
        if isolation == "strict":
            slots.allocate(home, name)
        spec = _spec(name, isolation)
        vm = launching.start_vm(
            home, spec, kind=ONCE, incarnation=0, with_data=False, progress=progress
        )
        stop_vm(home, vm)


def _remembered(home: Path, isolation: Isolation) -> Seen:
    tried = accelerator.tried_at(home, isolation)
    when = f" (tried {tried})" if tried else ""
    if accelerator.remembered(home, isolation) == accelerator.KVM:
        return ok(f"KVM: a guest booted on it{when}")
    why = accelerator.reason(home, isolation)
    fix = "use a host with working hardware virtualisation; then: box doctor --boot"
    if not accelerator.DEVICE.exists():
        fix = "switch virtualisation on (firmware; of a VM: its host), and load KVM's module"
    elif "Permission denied" in why:
        # A slot's UID is in no group: the node's mode is what lets it in.
        fix = (
            f"sudo chmod 0666 {accelerator.DEVICE} (lasting: a udev rule), then: box doctor --boot"
        )
    return finding(
        f"software emulation, slow and no boundary that QEMU vouches for: {why}{when}", fix
    )


def _spec(name: str, isolation: Isolation) -> Spec:
    return Spec(
        name=name,
        base="builtin:busybox",
        backend="qemu",
        isolation=isolation,
        cpus=1,
        ram_mib=_RAM_MIB,
        network="none",
        readonly=False,
        timeout_seconds=0,
        env=(),
        data_size="16M",
        state="running",
        on_drift="alert",
        protect=False,
    )
