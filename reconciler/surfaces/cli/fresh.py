"""`run`: one command in a VM of its own, which is thrown away."""

from __future__ import annotations

import importlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.engine import warm
from reconciler.engine.contact import Contact, contact_of
from reconciler.engine.home import open_home
from reconciler.errors import Busy
from reconciler.linux import identity
from reconciler.surfaces.cli import asking, vm
from reconciler.surfaces.cli.endings import unwinding
from reconciler.surfaces.cli.options import Parsed, Usage
from reconciler.surfaces.cli.terminal import progress

if TYPE_CHECKING:
    from reconciler.engine.holding import DataHeld

# What starts VMs is imported where one has to be started: most of the time of a `run` that takes a
# waiting one would be spent on that.
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
                machine = _waiting(home, parsed) or _fresh(home, parsed)
                return vm.command(home, machine, parsed, endings)
            finally:
                # A signal up to here, even in this call, still reaches the block below.
                endings.ignore()
        finally:
            _end_own(home, parsed.name)


def _waiting(home: Path, parsed: Parsed) -> Contact | None:
    """A VM that waits for such a command; None without one, or if we are to wait for /data."""
    try:
        taken = warm.take(home, parsed.name, with_data=not parsed.has("--no-data"))
    except Busy:
        if parsed.has("--wait"):
            return None
        raise
    if taken is not None:
        # While its command runs: the end of a VM takes most of what its start would.
        threading.Thread(target=_load_end).start()
    return taken


def _fresh(home: Path, parsed: Parsed) -> Contact:
    """Start a VM for the command, as soon as nobody has /data if we are to wait for that."""
    from reconciler.engine import holding, launching
    from reconciler.engine.records import ONCE
    from reconciler.surfaces import declared

    show = progress(parsed.name)
    with_data = not parsed.has("--no-data")

    def start() -> Contact:
        # After a wait too: what held /data may have lost its command, and the Boxfile may differ.
        _reap(home)
        spec, _, _ = declared.sandbox(home, parsed.name)
        taken = warm.take(home, parsed.name, with_data=with_data)
        return taken or contact_of(
            home,
            launching.start_vm(
                home, spec, kind=ONCE, incarnation=0, with_data=with_data, progress=show
            ),
        )

    seconds = _given_wait(parsed)
    if seconds is None:
        return start()
    # Refused at once where it is no sandbox.
    declared.sandbox(home, parsed.name)

    def waiting(held: DataHeld) -> None:
        show(f"waiting for /data: {held.brief}")

    return holding.when_free(home, parsed.name, seconds, start, waiting)


def _load_end() -> None:
    for module in ("records", "stopping", "refilling"):
        importlib.import_module(f"reconciler.engine.{module}")


def _end_own(home: Path, name: str) -> None:
    from reconciler.engine import records
    from reconciler.engine.refilling import refill_in_background
    from reconciler.engine.stopping import stop_vm

    me = identity.identify(os.getpid())
    for record in records.vm_records(home, name):
        if record.kind == records.ONCE and record.owner == me:
            stop_vm(home, record, term_ms=_RUN_TERM_MS)
            if record.spec.warm:
                refill_in_background(home, name)


def _reap(home: Path) -> None:
    """Take away VMs of `run` commands that were killed before they could."""
    from reconciler.engine import records, traces

    for record in records.vm_records(home):
        if record.kind == records.ONCE and not identity.runs(record.owner):
            traces.discard(home, record)


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
