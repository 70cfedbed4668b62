"""What we ask a running QEMU to do, over QMP."""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING

from reconciler.linux import sockets
from reconciler.vmm.qmp import Qmp, QmpError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONSOLE_BYTES = 65536
"""Size of the ring that keeps the guest's console; must be a power of two."""

_DISK_FDSET = 1


@contextlib.contextmanager
def connected(directory: Path, *, timeout_seconds: float) -> Iterator[Qmp]:
    """A session with the QEMU whose control socket is in `directory`; it serves one at a time.

    Raises OSError when nobody is there, QmpError when it does not answer in time.
    """
    with sockets.connect_private(directory, "qmp", timeout_seconds=timeout_seconds) as sock:
        yield Qmp(sock, timeout_seconds=timeout_seconds)


def save(qmp: Qmp, target: int, *, timeout_seconds: float) -> None:
    """Pause the VM and write its whole state to the file open at `target`; it stays paused."""
    qmp.execute("stop")
    _events_on(qmp)
    # The default is a polite 128 MiB/s, meant for networks.
    qmp.execute("migrate-set-parameters", {"max-bandwidth": 1 << 40})
    qmp.execute("getfd", {"fdname": "snapshot"}, fds=[target])
    qmp.execute("migrate", {"uri": "fd:snapshot"})
    _wait_migrated(qmp, timeout_seconds)


def restore(qmp: Qmp, source: int, *, timeout_seconds: float) -> None:
    """Load a state written by `save` from the file open at `source`; the VM stays paused."""
    _events_on(qmp)
    qmp.execute("getfd", {"fdname": "snapshot"}, fds=[source])
    qmp.execute("migrate-incoming", {"uri": "fd:snapshot"})
    _wait_migrated(qmp, timeout_seconds)


def attach_data(qmp: Qmp, disk: int) -> None:
    """Put the disk image open read-write at `disk` under the guest's second block device."""
    qmp.execute("add-fd", {"fdset-id": _DISK_FDSET}, fds=[disk])
    path = f"/dev/fdset/{_DISK_FDSET}"
    qmp.execute("blockdev-add", {"node-name": "data-disk", "driver": "file", "filename": path})
    # `raw` said outright: a guest that writes another format's header is never believed.
    node = {"node-name": "data", "driver": "raw", "file": "data-disk"}
    qmp.execute("blockdev-reopen", {"options": [node]})
    qmp.execute("blockdev-del", {"node-name": "data-empty"})


def detach_data(qmp: Qmp, size_bytes: int) -> None:
    """Take the disk image away again: an empty node of `size_bytes` is behind the device then."""
    empty = {"node-name": "data-empty", "driver": "null-co", "size": size_bytes}
    qmp.execute("blockdev-add", empty)
    node = {"node-name": "data", "driver": "raw", "file": "data-empty"}
    qmp.execute("blockdev-reopen", {"options": [node]})
    qmp.execute("blockdev-del", {"node-name": "data-disk"})
    qmp.execute("remove-fd", {"fdset-id": _DISK_FDSET})


def console(qmp: Qmp, *, timeout_seconds: float = 10.0) -> bytes:
    """What the guest printed on its console since this was asked last, at most CONSOLE_BYTES."""
    import base64

    text = qmp.execute(
        "ringbuf-read",
        {"device": "console", "size": CONSOLE_BYTES, "format": "base64"},
        timeout_seconds=timeout_seconds,
    )
    try:
        return base64.b64decode(text, validate=True)[:CONSOLE_BYTES]
    except (TypeError, ValueError) as error:
        raise QmpError("QEMU answered with something that is no console.") from error


def _events_on(qmp: Qmp) -> None:
    capability = {"capability": "events", "state": True}
    qmp.execute("migrate-set-capabilities", {"capabilities": [capability]})


def _wait_migrated(qmp: Qmp, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while True:
        left = deadline - time.monotonic()
        status = qmp.wait_event("MIGRATION", timeout_seconds=left).get("status")
        if status == "completed":
            return
        if status in ("failed", "cancelled"):
            info = qmp.execute("query-migrate")
            raise QmpError("QEMU could not move the VM's state.", details=json.dumps(info)[:2000])
