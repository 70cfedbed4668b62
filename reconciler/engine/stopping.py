"""Ending VMs: asked first, so that /data is whole; then killed; then nothing of them is left."""

from __future__ import annotations

from pathlib import Path

from reconciler.engine import console_log, contact, traces
from reconciler.engine.powering_off import power_off
from reconciler.engine.records import VmRecord
from reconciler.linux import identity

_TERM_MS = 5000


def stop_vm(home: Path, record: VmRecord, *, term_ms: int = _TERM_MS) -> bool:
    """End a VM: TERM to all in it, KILL after `term_ms`, /data written out, power off.

    A guest that does not take part in time is killed, and so is one without /data, of which nothing
    stays, and a frozen one, which cannot answer. True when it ended in order. Nothing of the VM is
    left either way.
    """
    try:
        return record.with_data and _ask(home, record, term_ms)
    finally:
        traces.discard(home, record)


def _ask(home: Path, record: VmRecord, term_ms: int) -> bool:
    if record.identity is None or contact.is_frozen(record.directory(home)):
        return False
    with identity.open_process(record.identity) as vmm:
        if vmm is None:
            return False
        console_log.drain_if_possible(home, record)
        return power_off(record.directory(home), bytes.fromhex(record.token), vmm, term_ms)
