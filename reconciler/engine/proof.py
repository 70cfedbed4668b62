"""The proof that a sandbox got a kernel of its own, bound to what decides it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from reconciler.codes import Code
from reconciler.engine import journal
from reconciler.engine.parts import Parts
from reconciler.errors import BoxError
from reconciler.guest.protocol import Ready
from reconciler.linux import files, identity

_BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class NotProven(BoxError):
    """The guest's kernel could not be told from the host's."""

    code = Code.NOT_PROVEN


def prove(home: Path, backend: str, parts: Parts, ready: Ready) -> None:
    """Compare the kernel that the guest's agent saw with the one this host's processes see.

    A process that only pretends to be a VM sees the host's boot ID. Raises NotProven; else the
    proof is kept for the parts' fingerprint.
    """
    host = _host_kernel()
    guest = {
        "release": ready.release,
        "version": ready.kernel_version,
        "boot_id": ready.boot_id,
    }
    wrong = _differences(guest, host, parts.kernel.release)
    if wrong:
        raise NotProven(
            "The sandbox did not prove that it has a kernel of its own.",
            details="\n".join([*wrong, f"guest: {guest}", f"host: {host}"]),
        )
    value = {"backend": backend, "guest": guest, "host": host, "proven_at": journal.now()}
    files.write_json(_path(home, backend, parts.fingerprint), value)


def proof_of(home: Path, backend: str, fingerprint: str) -> dict[str, Any] | None:
    """What was proven for this fingerprint, None when nothing was, or nothing that can be read."""
    try:
        return files.read_json(_path(home, backend, fingerprint))
    except (FileNotFoundError, files.BrokenFile):
        return None


def _differences(guest: dict[str, str], host: dict[str, str], wanted: str) -> list[str]:
    wrong = []
    if not _BOOT_ID.fullmatch(guest["boot_id"]):
        wrong.append("the guest told no boot ID")
    if guest["boot_id"] == host["boot_id"]:
        wrong.append("the guest's boot ID is the host's: both run on one kernel")
    if guest["release"] != wanted:
        wrong.append(f"the guest runs {guest['release']!r}, not the kernel {wanted!r} it was given")
    same = (guest["release"], guest["version"]) == (host["release"], host["version"])
    if same and guest["boot_id"] == host["boot_id"]:
        wrong.append("release and version are the host's")
    return wrong


def _host_kernel() -> dict[str, str]:
    name = os.uname()
    return {"release": name.release, "version": name.version, "boot_id": identity.boot_id()}


def _path(home: Path, backend: str, fingerprint: str) -> Path:
    return home / "proofs" / f"{backend}-{fingerprint}.json"
