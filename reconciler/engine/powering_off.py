"""Asking a guest to end in order, with nothing loaded but what that takes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from reconciler.errors import BoxError
from reconciler.guest import channel
from reconciler.guest.transfer import ChannelClosed

if TYPE_CHECKING:
    import os

    from reconciler.linux.identity import Process

_PORT_SECONDS = 2.0
_ANSWER_SECONDS = 5.0
_POWER_OFF_SECONDS = 10.0
WRITE_OUT_SECONDS = 60.0
"""For an agent that answered just now: cut short on a slow disk, what a command wrote is lost."""


def power_off(
    directory: str | os.PathLike[str],
    token: bytes,
    vmm: Process,
    term_ms: int,
    *,
    write_out_seconds: float = WRITE_OUT_SECONDS,
) -> bool:
    """Have the guest end all that runs in it, KILL after `term_ms`, and write /data out.

    True when it did so in time; its VMM may still run then, and has nothing left to do.
    """
    with (
        contextlib.suppress(BoxError),
        channel.claim_port(directory, channel.PORTS, _PORT_SECONDS) as sock,
        channel.Session(sock, token, _ANSWER_SECONDS) as session,
    ):
        session.shutdown(term_ms)
        try:
            # The machine may be a while at switching itself off: whoever asked does that.
            session.down(term_ms / 1000 + write_out_seconds)
        except ChannelClosed:
            return vmm.wait(_POWER_OFF_SECONDS)
        return True
    return False
