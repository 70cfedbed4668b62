"""Seeing a process end."""

from __future__ import annotations

import os
import select


def until_gone(pid: int) -> None:
    """Wait until no process has that PID."""
    try:
        process = os.fdopen(os.pidfd_open(pid), "rb")
    except ProcessLookupError:
        return
    with process:
        assert select.select([process], [], [], 20)[0], "it still runs"
