"""Names and bits of Linux capabilities (linux/capability.h)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# The position in the list is the bit number.
NAMES = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
)


def mask(names: Iterable[str]) -> int:
    """The bit mask of `names`, as /proc/PID/status prints it; ValueError for an unknown name."""
    total = 0
    for name in names:
        if name not in NAMES:
            raise ValueError(f"no capability is named {name}")
        total |= 1 << NAMES.index(name)
    return total


def describe(bits: int) -> str:
    """The names in a mask, or "none"; bits that a newer kernel added are given as numbers."""
    if bits == 0:
        return "none"
    known = [name for bit, name in enumerate(NAMES) if bits >> bit & 1]
    newer = [f"bit {bit}" for bit in range(len(NAMES), bits.bit_length()) if bits >> bit & 1]
    return ", ".join(known + newer)
