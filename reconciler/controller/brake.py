"""When the absence of Boxfiles is an order to destroy sandboxes. Pure.

A missing file can mean that the user removed it, and it can mean that a disk is not mounted, a
checkout is half done, or `rm` hit the wrong folder. The first costs a VM, and rightly so; for the
others the sandboxes stay until somebody says that it was meant.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

FEW = 2
"""So many absences at once are believed, unless they are all there is."""

LARGEST_SHARE = 0.3
"""More than this part of all sandboxes at once is a mass deletion, when more than a FEW."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why an absence proves nothing. A passing doubt is waited out, another can be overruled."""

    reason: str
    message: str
    passing: bool


@dataclass(frozen=True, slots=True)
class Absence:
    """The names without a file and what speaks against destroying them.

    `owned` are all sandboxes of this folder, `absent` those without a Boxfile, `held` those that an
    earlier look held, `doomed` those it ordered to be destroyed, which may take several tries.
    `doubt` is None when the scan proves the absence. `confirmed` is the token a
    user gave.
    """

    folder: str
    owned: frozenset[str]
    absent: frozenset[str]
    held: frozenset[str] = frozenset()
    doomed: frozenset[str] = frozenset()
    doubt: Doubt | None = None
    confirmed: str | None = None


@dataclass(frozen=True, slots=True)
class Ruling:
    """What to destroy, what is held until it is confirmed with `token`, what to wait for."""

    destroy: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    reason: str = ""
    message: str = ""
    token: str = ""


def rule(absence: Absence) -> Ruling:
    """Decide about every absent name: destroyed, held or waited for."""
    doubt = absence.doubt
    if doubt is not None and doubt.passing:
        return Ruling(waiting=absence.absent, reason=doubt.reason, message=doubt.message)
    doomed = absence.absent & absence.doomed
    undecided = absence.absent - doomed
    doubt = doubt or _too_many(len(undecided), len(absence.owned - doomed))
    held = undecided if doubt else undecided & absence.held
    token = token_for(absence.folder, held) if held else ""
    if not held or absence.confirmed == token:
        return Ruling(destroy=absence.absent)
    return Ruling(
        destroy=absence.absent - held,
        held=held,
        reason=doubt.reason if doubt else "StillHeld",
        message=doubt.message if doubt else "held since many Boxfiles were gone at once",
        token=token,
    )


def token_for(folder: str, names: frozenset[str]) -> str:
    """The word that confirms the destruction of exactly these sandboxes of this folder."""
    text = "\n".join([folder, *sorted(names)])
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:10]


def _too_many(gone: int, total: int) -> Doubt | None:
    if gone == total >= FEW:
        return Doubt("AllGone", f"all {total} Boxfiles are gone at once", passing=False)
    if gone > FEW and gone > total * LARGEST_SHARE:
        return Doubt("ManyGone", f"{gone} of {total} Boxfiles are gone at once", passing=False)
    return None
