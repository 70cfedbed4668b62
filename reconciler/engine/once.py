"""The VM of one command: taken or started when it may be, and ended with it, exactly that one.

What starts and ends VMs is imported where that is done: most of the time of a command that takes a
waiting VM would be spent on it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.engine import warm
from reconciler.engine.contact import Contact, contact_of
from reconciler.engine.powering_off import power_off
from reconciler.errors import Busy
from reconciler.linux import files, identity

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.engine.holding import DataHeld
    from reconciler.engine.parts import Progress
    from reconciler.engine.spec import Spec

_TERM_MS = 1000
_KILL_SECONDS = 5.0


class Machine:
    """A VM that does not outlive its command. What is about to be ours is noted before it is.

    So `end` finds it wherever `start` was interrupted, and ends no other one of this process:

        machine = Machine(home, name)
        try:
            vm = machine.start(...)
            ...
        finally:
            machine.end()
    """

    def __init__(self, home: Path, name: str) -> None:
        self._home = home
        self._name = name
        # By its name, what is ours alone; and the token that a waiting one has once it is ours.
        self._noted: dict[str, str | None] = {}
        self.keeps_waiting = False
        # Whether one was ended before its guest had said that /data is whole.
        self.unwritten = False

    def start(
        self,
        declared: Callable[[], Spec],
        *,
        with_data: bool,
        wait_seconds: float | None,
        progress: Progress,
    ) -> Contact:
        """Take a waiting VM or start one; with `wait_seconds` it waits that long for /data.

        `declared` is asked right before each start: a Boxfile may change while we wait. Raises
        DataHeld, and what `declared` and `launching.start_vm` raise.
        """
        try:
            taken = self._take(with_data)
        except Busy:
            if wait_seconds is None:
                raise
            taken = None
        if taken is not None:
            return taken

        def attempt() -> Contact:
            # After a wait too: what held /data may have lost its command.
            reap(self._home)
            spec = declared()
            return self._take(with_data) or self._started(spec, with_data, progress)

        if wait_seconds is None:
            return attempt()
        return self._when_free(declared, attempt, wait_seconds, progress)

    def end(self) -> bool:
        """Stop it, in order if it takes part; nothing of it is left. Twice is once.

        True when it was of a sandbox that keeps VMs waiting, which may have one too few now.
        """
        from reconciler.engine import records, traces
        from reconciler.engine.stopping import stop_vm

        for vm, token in self._noted.items():
            try:
                record = records.vm_record(self._home, vm)
            except files.BrokenFile:
                if token is None:
                    traces.discard_named(self._home, vm)
                continue
            if record is not None and token in (None, record.token):
                ran = record.with_data and identity.runs(record.identity)
                done = stop_vm(self._home, record, term_ms=_TERM_MS)
                self.unwritten = self.unwritten or (ran and not done)
                self.keeps_waiting = self.keeps_waiting or bool(record.spec.warm)
        return self.keeps_waiting

    def end_soon(self) -> tuple[str, ...]:
        """End what was taken while it waited, as far as anybody can tell who uses the sandbox.

        Its VMM is told to end, /data written out and free; what else there is of it is left to
        whoever fills the pool (`traces.discard_named`), which takes longer than all this. Other VMs
        are ended whole. The names of those that are left.
        """
        taken = [vm for vm, token in self._noted.items() if token and self._kill(vm, token)]
        if len(taken) < len(self._noted):
            self.end()
        return tuple(taken)

    def _kill(self, vm: str, token: str) -> bool:
        try:
            value = files.read_json(self._home / "run" / f"{vm}.json")
            if value["token"] != token:
                return False
            who = identity.ProcessIdentity.from_dict(value["identity"])
            with_data = bool(value["with_data"])
        except (OSError, files.BrokenFile, AttributeError, KeyError, TypeError, ValueError):
            return False
        with identity.open_process(who) as vmm, contextlib.suppress(ProcessLookupError):
            if vmm is not None:
                if with_data:
                    directory = self._home / "run" / vm
                    done = power_off(directory, bytes.fromhex(token), vmm, _TERM_MS)
                    if not done and not vmm.wait(0):
                        self._note_unwritten(vm)
                vmm.signal(signal.SIGKILL)
                # What it had of /data is free with its end, and not before.
                return not with_data or vmm.wait(_KILL_SECONDS)
        return True

    def _note_unwritten(self, vm: str) -> None:
        from reconciler.engine.stopping import note_unwritten

        self.unwritten = True
        note_unwritten(self._home, self._name, vm)

    def _take(self, with_data: bool) -> Contact | None:  # noqa: FBT001
        return warm.take(
            self._home, self._name, with_data=with_data, noting=self._noted.__setitem__
        )

    def _started(self, spec: Spec, with_data: bool, progress: Progress) -> Contact:  # noqa: FBT001
        from reconciler.engine import launching, records

        vm = f"{self._name}.{os.urandom(4).hex()}"
        self._noted[vm] = None
        record = launching.start_vm(
            self._home,
            spec,
            kind=records.ONCE,
            incarnation=0,
            with_data=with_data,
            vm=vm,
            progress=progress,
        )
        return contact_of(self._home, record)

    def _when_free(
        self,
        declared: Callable[[], Spec],
        attempt: Callable[[], Contact],
        seconds: float,
        progress: Progress,
    ) -> Contact:
        from reconciler.engine import holding

        # Refused at once where it is no sandbox.
        declared()

        def waiting(held: DataHeld) -> None:
            progress(f"waiting for /data: {held.brief}")

        return holding.when_free(self._home, self._name, seconds, attempt, waiting)


def reap(home: Path) -> None:
    """Take away the VMs of commands that were killed before they could."""
    from reconciler.engine import records, traces

    for record in records.vm_records(home):
        if record.kind == records.ONCE and not identity.runs(record.owner):
            traces.discard(home, record)
