"""What is wanted of a name: follows from its files, its record and the ruling on absences. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.controller.conditions import Condition
from reconciler.controller.entry import Declared, Faulty, Unsettled

if TYPE_CHECKING:
    from reconciler.boxfile.problems import Problem
    from reconciler.controller.brake import Ruling
    from reconciler.controller.folder import Entry
    from reconciler.engine.records import SandboxRecord
    from reconciler.engine.spec import Spec


class Order(StrEnum):
    """What the engine is told: hold the sandbox to a spec, destroy it, or leave it alone."""

    HOLD_TO = "hold to"
    DESTROY = "destroy"
    LEAVE = "leave"


@dataclass(frozen=True)
class Wish:
    """The order for one name, with what is said of its file.

    `spec` is set with HOLD_TO only: the file's, or the last good one while the file is bad, being
    written, missing or in conflict. `source` is the file the spec was read from now, None for a
    last good one; `stamp` changes whenever the user touched the file. `known`: there is a record.
    """

    name: str
    order: Order
    conditions: tuple[Condition, ...]
    spec: Spec | None = None
    source: Path | None = None
    stamp: str = ""
    problems: tuple[Problem, ...] = ()
    known: bool = False

    @property
    def accepted(self) -> Condition:
        """What is said of the file."""
        return self.conditions[0]

    @property
    def essence(self) -> object:
        """What a pass depends on: while it is the same, nothing new is to be done."""
        fault = self.accepted.reason if self.faulty else ""
        return (self.order, self.spec, fault)

    @property
    def faulty(self) -> bool:
        """Whether its file must be mended."""
        return self.accepted.status == "False" and self.order is not Order.DESTROY


def wish_for(
    name: str,
    entries: tuple[Entry, ...],
    record: SandboxRecord | None,
    *,
    elsewhere: str | None,
    ruling: Ruling,
) -> Wish:
    """What is wanted of `name`.

    `entries` are its files in this folder, `record` the engine's. `elsewhere` is the Boxfile that
    has the name already and still exists outside this folder.
    """
    if elsewhere is not None:
        message = f"the name is taken by {elsewhere}"
        return Wish(name, Order.LEAVE, (Condition("Accepted", "False", "Conflict", message),))
    if not entries:
        return _absent(name, record, ruling)
    if len(entries) > 1:
        return _in_conflict(name, entries, record)
    return _from_file(name, entries[0], record)


def _from_file(name: str, entry: Entry, record: SandboxRecord | None) -> Wish:
    stamp = str(entry.stamp or "")
    match entry.state:
        case Declared(spec=spec):
            accepted = Condition("Accepted", "True", "Valid")
            return Wish(
                name, Order.HOLD_TO, (accepted,), spec, entry.path, stamp, known=record is not None
            )
        case Unsettled():
            accepted = Condition("Accepted", "Unknown", "BeingWritten", "the file is being written")
            return _last_good(name, record, (accepted,), stamp)
        case Faulty(reason=reason, message=message, problems=problems):
            accepted = Condition("Accepted", "False", reason, message)
            return _last_good(name, record, (accepted,), stamp, problems)


def _last_good(
    name: str,
    record: SandboxRecord | None,
    conditions: tuple[Condition, ...],
    stamp: str = "",
    problems: tuple[Problem, ...] = (),
) -> Wish:
    """Leave a bad file's name alone, or keep its sandbox as it was when the file was good."""
    if record is None:
        return Wish(name, Order.LEAVE, conditions, stamp=stamp, problems=problems)
    # No source: what lies there now is not what this spec was read from.
    return Wish(
        name, Order.HOLD_TO, conditions, record.spec, stamp=stamp, problems=problems, known=True
    )


def _in_conflict(name: str, entries: tuple[Entry, ...], record: SandboxRecord | None) -> Wish:
    """Two files claim one name: the one that made the sandbox keeps it, else none gets it."""
    paths = " and ".join(str(entry.path) for entry in entries)
    owner = next((e for e in entries if record and str(e.path) == record.source), None)
    rest = f"; {owner.path} keeps it" if owner else "; remove one of them"
    conflict = Condition("Accepted", "False", "Conflict", f"{paths} have one name{rest}")
    if owner is None:
        return _last_good(name, record, (conflict,))
    return replace(_from_file(name, owner, record), conditions=(conflict,))


def _absent(name: str, record: SandboxRecord | None, ruling: Ruling) -> Wish:
    if name in ruling.destroy and not (record and record.spec.protect):
        accepted = Condition("Accepted", "False", "Gone", "its Boxfile is gone")
        return Wish(name, Order.DESTROY, (accepted,), known=record is not None)
    if name in ruling.destroy:
        accepted = Condition(
            "Accepted", "False", "Protected", "its Boxfile is gone, and `protect` keeps it"
        )
        return _last_good(name, record, (accepted,))
    accepted = Condition("Accepted", "Unknown", ruling.reason or "Gone", ruling.message)
    if name in ruling.held:
        held = Condition("DeletionHeld", "True", ruling.reason, ruling.message)
        return _last_good(name, record, (accepted, held))
    return _last_good(name, record, (accepted,))
