"""What a standing VM's guest printed on its console, kept beyond the ring that its VMM has for it.

Reading the ring empties it, so what was read goes to a file. The text is the guest's, by way of a
VMM that may be the guest's too: bounded, and never taken for anything but text.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from reconciler.engine.records import STANDING, VmRecord
from reconciler.errors import BoxError
from reconciler.linux import appending, files
from reconciler.vmm import control

MOST_BYTES = 1 << 20
"""Size of the log at which it becomes the older file; the one before that goes."""

_SECONDS = 1.0


def path_of(home: Path, sandbox: str) -> Path:
    """Where the console of a sandbox is kept."""
    return home / "sandboxes" / sandbox / "console.log"


def drain(home: Path, record: VmRecord, *, seconds: float = _SECONDS) -> None:
    """Move what the guest has printed since the last time to the log.

    Only of a VM that stands and was brought up: before that its maker has the control socket, which
    serves one client at a time. Raises Busy, QmpError and OSError, after about `seconds` at most.
    """
    if record.kind != STANDING or record.identity is None:
        return
    directory = record.directory(home)
    deadline = time.monotonic() + seconds
    # The lock says who may connect: a second client would be accepted and then wait in silence.
    with (
        files.locked(directory / "qmp.lock", timeout_seconds=seconds / 2),
        # Half of it for the greeting, and what is left of the other half for each answer.
        control.connected(directory, timeout_seconds=_left(deadline) / 2) as qmp,
    ):
        text = control.console(qmp, timeout_seconds=_left(deadline))
        if text:
            appending.append(path_of(home, record.sandbox), text, MOST_BYTES)


def drain_if_possible(home: Path, record: VmRecord) -> None:
    """The same for a VM that is about to end: what its console says is worth a second, no more."""
    with contextlib.suppress(BoxError, OSError):
        drain(home, record)


def _left(deadline: float) -> float:
    return max(0.01, deadline - time.monotonic())
