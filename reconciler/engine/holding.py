"""Who holds /data of a sandbox, and waiting until nobody does."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from reconciler import errors
from reconciler.engine import contact, records
from reconciler.engine.home import sandbox_directory
from reconciler.engine.records import STANDING, VmRecord
from reconciler.errors import BoxError, Busy
from reconciler.linux import files, identity

T = TypeVar("T")

_GLANCE_SECONDS = 1.0
"""How often to look whether the holder was frozen, of which no process tells."""
_LOOK_SECONDS = 0.1
"""How often to look where there is no process to wait for: a VM that is just being started."""


class DataHeld(errors.DataHeld):
    """Another VM of the sandbox has its /data; `holder` is that VM, None when it is not known."""

    def __init__(self, name: str, holder: VmRecord | None, *, waited: str = "") -> None:
        super().__init__(
            f"{waited}{_said(name, holder)}; one VM at a time can.",
            details=_details(holder),
            hint=_hint(name, holder),
        )
        self.holder = holder


def data_held(home: Path, name: str, but: str = "") -> BoxError:
    """The error that a VM other than `but` has /data: DataHeld, or Frozen where waiting is vain."""
    holder = holder_of(home, name, but)
    if holder is not None and contact.is_frozen(holder.directory(home)):
        return contact.frozen(name, holder.directory(home))
    return DataHeld(name, holder)


def _said(name: str, holder: VmRecord | None) -> str:
    if holder is None:
        return f"Another VM has /data of {name}"
    if holder.kind == STANDING:
        return f"{name} is up, and that VM has its /data"
    return f"A `box run` has /data of {name}"


def _details(holder: VmRecord | None) -> str | None:
    if holder is None:
        return None
    who = holder.identity if holder.kind == STANDING else holder.owner
    process = f"process {who.pid}" if who else "just being started"
    what = "its VMM" if holder.kind == STANDING else "the command"
    return f"{what}: {process}, since {holder.started_at}"


def _hint(name: str, holder: VmRecord | None) -> str:
    ways = "`box run --wait SECONDS` waits for it, `box run --no-data` runs without /data"
    if holder is not None and holder.kind == STANDING:
        return f"`box exec {name} -- COMMAND` runs it in the VM that is up; {ways}"
    return ways


def holder_of(home: Path, name: str, but: str) -> VmRecord | None:
    """The VM of sandbox `name`, other than `but`, that has its /data; None when it is not known.

    One that runs rather than one that is being started, which may be about to find it taken.
    """
    found = [
        vm for vm in records.vm_records(home, name) if vm.vm != but and vm.with_data and _lives(vm)
    ]
    found.sort(key=lambda vm: (vm.identity is None, vm.started_at))
    return found[0] if found else None


def _lives(vm: VmRecord) -> bool:
    if vm.identity is not None:
        return identity.runs(vm.identity)
    return vm.owner is None or identity.runs(vm.owner)


def when_free(
    home: Path,
    name: str,
    seconds: float,
    start: Callable[[], T],
    waiting: Callable[[DataHeld], None],
) -> T:
    """What `start` returns once it does not raise DataHeld, tried each time /data may be free.

    `waiting` is told of each holder once. Raises DataHeld when `seconds` are over, Frozen when the
    holder is frozen.
    """
    deadline = time.monotonic() + seconds
    told: VmRecord | None = None
    while True:
        try:
            with _turn(home, name, deadline):
                return start()
        except DataHeld as error:
            held = error
        if deadline <= time.monotonic():
            raise DataHeld(name, held.holder, waited=f"Waited {seconds:g} s. ") from held
        if held.holder != told:
            told = held.holder
            waiting(held)
        _wait_for(home, held.holder, deadline)


def _wait_for(home: Path, holder: VmRecord | None, deadline: float) -> None:
    """Sleep until the VM's process ends, or the command that has to end it does: a hint only."""
    seconds = deadline - time.monotonic()
    watched = () if holder is None else (holder.identity, holder.owner)
    if holder is None or holder.identity is None:
        seconds = min(seconds, _LOOK_SECONDS)
    with contextlib.ExitStack() as stack:
        poll = select.poll()
        for who in filter(None, watched):
            process = stack.enter_context(identity.open_process(who))
            if process is None:
                # The other one has yet to follow.
                seconds = min(seconds, _LOOK_SECONDS)
            else:
                poll.register(process.pidfd, select.POLLIN)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if poll.poll(max(1, round(min(left, _GLANCE_SECONDS) * 1000))):
                return
            if holder is not None and contact.is_frozen(holder.directory(home)):
                return


@contextlib.contextmanager
def _turn(home: Path, name: str, deadline: float) -> Iterator[None]:
    """Be the only one of those who wait that starts a VM: all are woken at once."""
    path = sandbox_directory(home, name) / "data.turn"
    with contextlib.ExitStack() as stack:
        left = max(0.0, deadline - time.monotonic())
        try:
            stack.enter_context(files.locked(path, timeout_seconds=left))
        except Busy as error:
            raise data_held(home, name) from error
        yield
