"""What differs between two Boxfiles, and what each difference means for a running sandbox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reconciler.boxfile.model import Boxfile

# Fields the VM is made of: another value needs another VM.
REPLACES = frozenset(
    {"base", "backend", "isolation", "cpus", "ram_mib", "network", "readonly", "data_size"}
)
# Fields read anew at each command or pass: the running VM stays.
LIVE = frozenset({"version", "timeout_seconds", "env", "state", "on_drift", "protect"})

# The value that gives a sandbox more reach, or a failure of its confinement less of an answer.
WIDER: dict[str, Callable[[object], bool]] = {
    "isolation": lambda new: new == "standard",
    "network": lambda new: new != "none",
    "on_drift": lambda new: new == "alert",
    "readonly": lambda new: new is False,
}


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs. `widening`: the new value confines less than the old one."""

    field: str
    old: object
    new: object
    needs_replace: bool
    widening: bool


def changes(old: Boxfile, new: Boxfile) -> tuple[Change, ...]:
    """Return the fields that differ, in the order of the format. Pure; empty when none does."""
    return tuple(
        Change(
            field=field,
            old=getattr(old, field),
            new=getattr(new, field),
            needs_replace=field in REPLACES,
            widening=field in WIDER and WIDER[field](getattr(new, field)),
        )
        for field in Boxfile.model_fields
        if getattr(old, field) != getattr(new, field)
    )
