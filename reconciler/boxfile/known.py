"""Words a Boxfile may contain that this version does not act on, and what to say to each."""

from __future__ import annotations

import difflib
from collections.abc import Collection

# Fields of the format that later versions of box act on.
NOT_YET_FIELDS = frozenset({"egress", "ports", "secrets", "services"})
# What other tools call our fields; of several, the one that the mapping at hand has.
ELSEWHERE = {
    "cpu": "cpus",
    "vcpus": "cpus",
    "environment": "env",
    "from": "base",
    "image": "base",
    "mem": "ram_mib",
    "memory": "ram_mib",
    "ram": "ram_mib",
    "read_only": "readonly mode",
    "readonly": "mode",
    "ro": "readonly mode",
    "timeout": "timeout_seconds",
    "disk": "data_size",
    "size": "data_size",
    "vm": "backend",
    "runtime": "backend",
    "users": "blueprint.users",
    "write_files": "blueprint.write_files",
    "runcmd": "blueprint.runcmd",
    "volume": "mounts",
    "volumes": "mounts",
    "source": "host",
    "target": "guest",
    "destination": "guest",
    "dst": "guest",
    "src": "host",
    "contents": "content",
    "permissions": "mode",
    "user": "name blueprint.users",
}
# Keys that have no field of that name in the mapping with a certain field, and what to do instead.
_SAID = {
    ("name", "base"): "a sandbox has its file's name (NAME.Boxfile or NAME/Boxfile)",
    ("owner", "content"): "files belong to root; a line of `runcmd` can change that",
}

_LONGEST = 40
NOT_YET = "known, but not supported by this version of box"


def unknown_key_message(key: str, fields: Collection[str]) -> str:
    """Say why a key that is none of `fields` is refused, with the field that was probably meant."""
    if key in NOT_YET_FIELDS and "base" in fields:
        return f"is {NOT_YET}; remove it"
    for field in fields:
        if said := _SAID.get((key, field)):
            return f"is not a field: {said}"
    if meant := _meant(key.lower(), fields):
        return f"is not a field; did you mean {meant}?"
    return "is not a field; fields are: " + ", ".join(sorted(fields))


def _meant(key: str, fields: Collection[str]) -> str | None:
    for elsewhere in ELSEWHERE.get(key, "").split():
        if elsewhere.partition(".")[0] in fields:
            return elsewhere
    if key in fields:
        return key
    # What is much longer than any field is none misspelt, and takes long to compare.
    known = [*fields, *_elsewhere_in(fields)]
    close = difflib.get_close_matches(key[:_LONGEST], known, n=1, cutoff=0.7)
    if not close:
        return None
    return close[0] if close[0] in fields else _meant(close[0], fields)


def _elsewhere_in(fields: Collection[str]) -> list[str]:
    """What others call one of these fields."""
    return [
        key
        for key, ours in ELSEWHERE.items()
        if any(each.partition(".")[0] in fields for each in ours.split())
    ]
