"""The configuration that a start of a VM hands to its backend, made in one place."""

from __future__ import annotations

from pathlib import Path

from reconciler.backends.qemu import Launch
from reconciler.confinement.policy import Slot
from reconciler.engine import accelerator, slots, snapshots, traces
from reconciler.engine.home import disk_of
from reconciler.engine.parts import Parts
from reconciler.engine.spec import Spec


def configuration(
    home: Path, spec: Spec, parts: Parts, *, vm: str, chosen: str, slot: Slot | None
) -> Launch:
    """What the VM `vm` of `spec` is launched with on the accelerator `chosen`.

    `slot` is a strict sandbox's, None under `standard`.
    """
    machine = parts.machine(spec, chosen, accelerator.tsc_khz(home))
    return Launch(
        home=home,
        runtime=parts.runtime,
        files=parts.files,
        name=vm,
        group=traces.group_of(home, vm),
        directory=home / "run" / vm,
        machine=machine,
        kernel=parts.kernel.path,
        initrd=parts.initrd,
        image=parts.image.path,
        isolation=spec.isolation,
        slot=slot,
        disk=disk_of(home, spec.name),
        snapshot=snapshots.state_path(home, parts.snapshot_key(machine)),
    )


def next_start(home: Path, spec: Spec, parts: Parts) -> Launch | None:
    """What the sandbox's next standing VM would be launched with, had it to start now.

    None when it has no slot yet: its first start gives it one. Where KVM has not been tried since
    this host booted, as if it worked: that has the wider reach.
    """
    strict = spec.isolation == "strict"
    slot = slots.held().get(home / "sandboxes" / spec.name) if strict else None
    if strict and slot is None:
        return None
    chosen = accelerator.remembered(home, spec.isolation) or accelerator.KVM
    return configuration(home, spec, parts, vm=spec.name, chosen=chosen, slot=slot)
