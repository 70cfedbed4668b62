"""Snapshots that nothing uses any more: which they are, and taking them away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reconciler.engine import accelerator, records, snapshots, traces
from reconciler.engine.parts import Parts, found_parts
from reconciler.engine.records import SandboxRecord
from reconciler.engine.spec import Spec
from reconciler.errors import BoxError
from reconciler.images import rootfs
from reconciler.linux import files

_BROKEN_SECONDS = 86400.0


def collect(home: Path) -> tuple[str, ...]:
    """Remove each snapshot that no sandbox would start from now and no VM was started from.

    Returns their keys. Whatever cannot be told counts as used: at worst a snapshot stays longer.
    Raises OSError, BoxError.
    """
    there = snapshots.keys(home)
    if not there:
        return ()
    used = _wanted(home)
    for key in there & used:
        snapshots.forget_broken(home, key, seconds=_BROKEN_SECONDS)
    gone = [key for key in sorted(there - used) if _remove(home, key)]
    return tuple(gone)


def _remove(home: Path, key: str) -> bool:
    return snapshots.remove(home, key, lambda: not _started_from(home, key))


def _started_from(home: Path, key: str) -> bool:
    """Whether a VM of this home may have been started from `key`."""
    for name in records.vm_names(home):
        try:
            vm = records.vm_record(home, name)
        except files.BrokenFile:
            return True
        # One that is being started has not said yet what it starts from.
        if vm is not None and (vm.identity is None or vm.snapshot == key):
            return True
    return bool(traces.lost(home))


def _wanted(home: Path) -> frozenset[str]:
    """The keys that the sandboxes of this home would start from now."""
    keys: set[str] = set()
    shared: dict[str, Parts] = {}
    for name in records.sandbox_names(home):
        try:
            record = records.sandbox_record(home, name)
            found = _keys(home, record.spec, shared) if record else set()
            # Without an image of it, or with another Boxfile by now, its last one may be it.
            sure = bool(found) and record is not None and _as_read(record)
        except (BoxError, OSError):
            found, sure = set(), False
        last = snapshots.last(home, name)
        keys |= found | ({last} if last and not sure else set())
    return frozenset(keys)


def _as_read(record: SandboxRecord) -> bool:
    """Whether the record's spec is what the next command would start: its Boxfile is unchanged."""
    if record.source is None:
        return True
    return records.stamp(Path(record.source)) in (record.source_stamp, "")


def _keys(home: Path, spec: Spec, shared: dict[str, Parts]) -> set[str]:
    """The key of a spec; two while it is not known whether KVM works, none without an image."""
    parts = shared.get(spec.backend)
    if parts is None:
        parts = found_parts(home, spec)
    else:
        # All else is the same for all.
        image = rootfs.built_image(home, spec.recipe)
        parts = replace(parts, image=image) if image else None
    if parts is None:
        return set()
    shared[spec.backend] = parts
    known = accelerator.remembered(home, spec.isolation)
    chosen = (known,) if known else (accelerator.KVM, accelerator.EMULATION)
    tsc_khz = accelerator.tsc_khz(home)
    return {parts.snapshot_key(parts.machine(spec, each, tsc_khz)) for each in chosen}
