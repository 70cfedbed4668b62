"""Ending VMs: asked first, so that /data is whole; then killed; then nothing of them is left."""

from __future__ import annotations

import contextlib
from pathlib import Path

from reconciler.engine import console_log, contact, journal, traces
from reconciler.engine.powering_off import power_off
from reconciler.engine.records import VmRecord
from reconciler.errors import BoxError
from reconciler.linux import identity

_TERM_MS = 5000
UNWRITTEN = (
    "its guest did not write /data out in time and was ended; what it wrote last may be lost"
)


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
        token = bytes.fromhex(record.token)
        # One that has ended by itself was not cut short by us.
        done = power_off(record.directory(home), token, vmm, term_ms)
        if not done and not vmm.wait(0):
            note_unwritten(home, record.sandbox, record.vm)
        return done


def note_unwritten(home: Path, sandbox: str, vm: str) -> None:
    """Keep that a VM is ended before its guest has said that /data is whole."""
    with contextlib.suppress(OSError, BoxError):
        journal.record(home, sandbox, "Warning", "NotWrittenOut", f"VM {vm}: {UNWRITTEN}")
