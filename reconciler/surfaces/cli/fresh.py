"""`run`: one command in a VM of its own, which is thrown away."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from reconciler.engine import once
from reconciler.engine.home import open_home
from reconciler.engine.refilling import refill_in_background
from reconciler.surfaces.cli import asking, vm
from reconciler.surfaces.cli.endings import unwinding
from reconciler.surfaces.cli.options import Parsed, Usage
from reconciler.surfaces.cli.terminal import progress, tell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from reconciler.engine.contact import Contact
    from reconciler.engine.spec import Spec

_DAY_SECONDS = 86_400


def run(given: Parsed) -> int:
    """Run the command that the command line asks for and return its exit status."""
    parsed = asking.checked(given, "run")
    wait_seconds = _given_wait(parsed)
    home = open_home()
    machine = once.Machine(home, parsed.name)
    with unwinding() as endings:
        try:
            try:
                contact = machine.start(
                    lambda: _declared(home, parsed.name),
                    with_data=not parsed.has("--no-data"),
                    wait_seconds=wait_seconds,
                    progress=progress(parsed.name),
                )
                with _space_watched(home, contact, with_data=not parsed.has("--no-data")):
                    return vm.command(home, contact, parsed, endings)
            finally:
                # A signal up to here, even in this call, still reaches the block below.
                endings.ignore()
        finally:
            left = machine.end_soon()
            if machine.unwritten:
                _tell_unwritten(parsed.name)
            if left or machine.keeps_waiting:
                try:
                    refill_in_background(home, parsed.name, left)
                except OSError:
                    # No process for it, or no room for its lock: then we do what has to be done.
                    machine.end()


@contextlib.contextmanager
def _space_watched(home: Path, running: Contact, *, with_data: bool) -> Iterator[None]:
    """Keep the command from filling the host's file system: nobody else may be looking."""
    if not with_data:
        yield
        return
    from reconciler.engine import space

    with space.watched(home, lambda name, text: tell(f"{name}: {text}"), only=running.vm):
        yield


def _tell_unwritten(name: str) -> None:
    from reconciler.engine.stopping import UNWRITTEN

    tell(f"box: {name}: {UNWRITTEN}")


def _declared(home: Path, name: str) -> Spec:
    from reconciler.surfaces import declared

    return declared.sandbox(home, name)[0]


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
