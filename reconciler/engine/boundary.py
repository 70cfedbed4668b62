"""What was last proved about the kernel boundary of a VM, and whether it still describes it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reconciler.confinement.facts import Verdict
from reconciler.engine import proof
from reconciler.engine.parts import current_fingerprint
from reconciler.engine.records import VmRecord
from reconciler.errors import BoxError


@dataclass(frozen=True)
class Kernel:
    """A kernel as a process on it sees it."""

    release: str
    boot_id: str


@dataclass(frozen=True)
class Boundary:
    """The proof for the files of `fingerprint`: what guest and host were when it was made.

    `verdict` is None where no VM runs; `have` says it in words.
    """

    fingerprint: str
    have: str
    verdict: Verdict | None
    guest: Kernel | None = None
    host: Kernel | None = None
    proven_at: str = ""


def of_running(home: Path, vm: VmRecord) -> Boundary:
    """The proof that a running VM rests on."""
    found = _proven(proof.proof_of(home, vm.spec.backend, vm.fingerprint), vm.fingerprint)
    if found is None:
        return Boundary(vm.fingerprint, "the proof of it cannot be read", Verdict.UNREADABLE)
    try:
        now = current_fingerprint(home, vm.spec.backend)
    except (BoxError, OSError) as error:
        have = f"what a VM rests on here cannot be told: {error}"
        return replace(found, have=have, verdict=Verdict.UNREADABLE)
    if now != vm.fingerprint:
        have = "VMM, kernel or runtime of this host have changed since it was started"
        return replace(found, have=have, verdict=Verdict.DIFFERS)
    return found


def of_next(home: Path, backend: str, fingerprint: str) -> Boundary:
    """The proof that the next VM would rest on."""
    found = _proven(proof.proof_of(home, backend, fingerprint), fingerprint)
    if found is None:
        return Boundary(fingerprint, "not proven yet: its first start does, or is refused", None)
    return replace(found, verdict=None)


def _proven(value: dict[str, Any] | None, fingerprint: str) -> Boundary | None:
    try:
        if value is None:
            return None
        guest, host = (
            Kernel(str(value[side]["release"]), str(value[side]["boot_id"]))
            for side in ("guest", "host")
        )
        proven_at = str(value["proven_at"])
    except (KeyError, TypeError):
        return None
    if guest.boot_id == host.boot_id:
        return None
    have = f"a kernel of its own, {guest.release}"
    return Boundary(fingerprint, have, Verdict.SAME, guest, host, proven_at)
