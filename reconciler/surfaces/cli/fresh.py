"""`run`: one command in a VM of its own, which is thrown away."""

from __future__ import annotations

import os
from pathlib import Path

from reconciler.engine import holding, launching, records, traces
from reconciler.engine.contact import contact_of
from reconciler.engine.home import open_home
from reconciler.engine.records import ONCE, VmRecord
from reconciler.engine.stopping import stop_vm
from reconciler.linux import identity
from reconciler.surfaces import declared
from reconciler.surfaces.cli import asking, vm
from reconciler.surfaces.cli.endings import unwinding
from reconciler.surfaces.cli.options import Parsed, Usage
from reconciler.surfaces.cli.terminal import progress

_DAY_SECONDS = 86_400
_RUN_TERM_MS = 1000


def run(given: Parsed) -> int:
    """Run the command that the command line asks for and return its exit status."""
    parsed = asking.checked(given, "run")
    _given_wait(parsed)
    home = open_home()
    with unwinding() as endings:
        try:
            try:
                record = _fresh(home, parsed)
                return vm.command(contact_of(home, record), parsed, endings)
            finally:
                # A signal up to here, even in this call, still reaches the block below.
                endings.ignore()
        finally:
            _end_own(home, parsed.name)


def _fresh(home: Path, parsed: Parsed) -> VmRecord:
    """Start a VM for the command, as soon as nobody has /data if we are to wait for that."""
    show = progress(parsed.name)

    def start() -> VmRecord:
        # After a wait too: what held /data may have lost its command, and the Boxfile may differ.
        _reap(home)
        spec, _, _ = declared.sandbox(home, parsed.name)
        with_data = not parsed.has("--no-data")
        return launching.start_vm(
            home, spec, kind=ONCE, incarnation=0, with_data=with_data, progress=show
        )

    seconds = _given_wait(parsed)
    if seconds is None:
        return start()
    # Refused at once where it is no sandbox.
    declared.sandbox(home, parsed.name)

    def waiting(held: holding.DataHeld) -> None:
        show(f"waiting for /data: {held.brief}")

    return holding.when_free(home, parsed.name, seconds, start, waiting)


def _end_own(home: Path, name: str) -> None:
    me = identity.identify(os.getpid())
    for record in records.vm_records(home, name):
        if record.kind == ONCE and record.owner == me:
            stop_vm(home, record, term_ms=_RUN_TERM_MS)


def _given_wait(parsed: Parsed) -> float | None:
    given = parsed.last("--wait")
    if given is None:
        return None
    if parsed.has("--no-data"):
        raise Usage("--wait waits for /data, and --no-data runs without it: one of the two.")
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _DAY_SECONDS:
        raise Usage(f"--wait takes seconds, more than 0 and at most {_DAY_SECONDS}, not {given!r}.")
    return seconds


def _reap(home: Path) -> None:
    """Take away VMs of `run` commands that were killed before they could."""
    for record in records.vm_records(home):
        if record.kind == ONCE and not identity.runs(record.owner):
            traces.discard(home, record)
