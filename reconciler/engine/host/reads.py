"""Which promises about a VMM this user cannot read, whatever the VMM is."""

from __future__ import annotations

import errno
from pathlib import Path

from reconciler.confinement.capabilities import mask
from reconciler.engine.host.check import Seen, not_applicable, ok
from reconciler.linux import procfs


def read_filter(status: bytes | None = None) -> Seen:
    """Whether the kernel would show a filter's program to us; `status` is a /proc/PID/status."""
    own = procfs.parse_status(status or Path("/proc/thread-self/status").read_bytes())
    if not own.cap_effective & mask(["CAP_SYS_ADMIN"]):
        return not_applicable(
            "without CAP_SYS_ADMIN a filter's content cannot be read; filters are counted"
        )
    if own.seccomp_mode:
        return not_applicable(
            "we are under a filter ourselves, so that of others cannot be read; they are counted"
        )
    return ok("a filter's content can be read, where nobody uses the VMM yet")


def read_label() -> Seen:
    """Whether a security module labels processes here."""
    try:
        label = Path("/proc/self/attr/current").read_bytes().strip(b"\0\n")
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOENT}:
            raise
        return not_applicable("no security module of this host labels processes")
    return ok(f"processes have labels, ours is {label.decode(errors='replace')[:80]}")
