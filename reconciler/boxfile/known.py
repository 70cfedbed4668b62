"""Words a Boxfile may contain that this version does not act on, and what to say to each."""

from __future__ import annotations

import difflib
from collections.abc import Collection

# Fields of the format, and values of fields, that later versions act on.
NOT_YET_FIELDS = frozenset(
    {
        "blueprint",
        "egress",
        "mounts",
        "packages",
        "passt",
        "pkgmgr",
        "ports",
        "run",
        "seccomp",
        "secrets",
        "services",
        "warm",
        "warmup",
    }
)
NOT_YET_VALUES = {
    "backend": frozenset({"firecracker", "krun", "podman"}),
    "network": frozenset({"bridge"}),
    "on_drift": frozenset({"freeze"}),
}
# What other tools call our fields.
ELSEWHERE = {
    "cpu": "cpus",
    "vcpus": "cpus",
    "environment": "env",
    "from": "base",
    "image": "base",
    "mem": "ram_mib",
    "memory": "ram_mib",
    "ram": "ram_mib",
    "read_only": "readonly",
    "timeout": "timeout_seconds",
    "disk": "data_size",
    "size": "data_size",
}

NOT_YET = "known, but not supported by this version of box"


def unknown_key_message(key: str, fields: Collection[str]) -> str:
    """Say why a top-level key is refused, with the field that was probably meant."""
    if key in NOT_YET_FIELDS:
        return f"is {NOT_YET}; remove it"
    if key == "name":
        return "is not a field: a sandbox has its file's name (NAME.Boxfile or NAME/Boxfile)"
    close = difflib.get_close_matches(key.lower(), fields, n=1, cutoff=0.7)
    meant = ELSEWHERE.get(key.lower()) or (close[0] if close else None)
    if meant:
        return f"is not a field; did you mean {meant}?"
    return "is not a field; fields are: " + ", ".join(sorted(fields))


def missing_network_message() -> str:
    """Say why `network` must be written although the format has a default for it."""
    return (
        "is bridge when left out, which comes with a later version of box; "
        "write `network: none`, which works now"
    )
