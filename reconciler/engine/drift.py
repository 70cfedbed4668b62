"""Drift: each difference between declared and found is one record, open until it is resolved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reconciler.confinement.facts import Fact
from reconciler.engine import journal
from reconciler.engine.records import VmRecord
from reconciler.linux import files

_RUNNING = "running"


def open_drifts(home: Path, name: str) -> dict[str, dict[str, Any]]:
    """The open differences of a sandbox: by promise, what was wanted and found, and since when."""
    try:
        value = files.read_json(home / "sandboxes" / name / "drift.json")
    except (FileNotFoundError, files.BrokenFile):
        return {}
    return {key: each for key, each in value.items() if isinstance(each, dict)}


def confinement_drifts(home: Path, name: str) -> tuple[str, ...]:
    """The promises of a sandbox's open differences, its running or not aside."""
    return tuple(sorted(promise for promise in open_drifts(home, name) if promise != _RUNNING))


def acknowledge(home: Path, name: str) -> None:
    """Close every open difference in the confinement: somebody asked for a fresh VM."""
    known = open_drifts(home, name)
    for promise in confinement_drifts(home, name):
        message = f"{promise}: acknowledged, after having been: {known[promise].get('have')}"
        journal.record(home, name, "Normal", "DriftAcknowledged", message, promise=promise)
    if known:
        _store(home, name, {k: v for k, v in known.items() if k == _RUNNING})


def vanished(home: Path, vm: VmRecord) -> None:
    """Record that a standing VM's VMM has ended and box did not end it."""
    known = open_drifts(home, vm.sandbox)
    pid = vm.identity.pid if vm.identity else None
    have = "the VMM ended" if vm.identity else "the VMM was never seen running"
    _open(home, vm, known, _RUNNING, "running", have, pid)


def resolved(home: Path, vm: VmRecord) -> None:
    """Record that a standing VM runs again."""
    _close(home, vm, open_drifts(home, vm.sandbox), _RUNNING)


def compare(home: Path, vm: VmRecord, facts: tuple[Fact, ...]) -> None:
    """Open a record for each new difference and close those that are no more."""
    known = open_drifts(home, vm.sandbox)
    pid = vm.identity.pid if vm.identity else None
    for fact in facts:
        if fact.failed:
            known = _open(home, vm, known, fact.promise, fact.want, fact.have, pid)
        else:
            known = _close(home, vm, known, fact.promise)
    _close(home, vm, known, _RUNNING)


def _open(
    home: Path,
    vm: VmRecord,
    known: dict[str, dict[str, Any]],
    promise: str,
    want: str,
    have: str,
    pid: int | None,
) -> dict[str, dict[str, Any]]:
    before = known.get(promise)
    if before and (before.get("incarnation"), before.get("have")) == (vm.incarnation, have):
        return known
    entry = {
        "incarnation": vm.incarnation,
        "want": want,
        "have": have,
        "since": journal.now(),
        "pid": pid,
        "start_time_ticks": vm.identity.start_time_ticks if vm.identity else None,
    }
    # The event first: a crash between the two tells it twice rather than never.
    message = f"{promise}: want {want}, have {have}"
    journal.record(home, vm.sandbox, "Warning", "Drift", message, promise=promise, **entry)
    return _store(home, vm.sandbox, {**known, promise: entry})


def _close(
    home: Path, vm: VmRecord, known: dict[str, dict[str, Any]], promise: str
) -> dict[str, dict[str, Any]]:
    entry = known.get(promise)
    if entry is None:
        return known
    message = f"{promise}: as declared again, after having been: {entry.get('have')}"
    data = {"promise": promise, "since": entry.get("since"), "incarnation": vm.incarnation}
    journal.record(home, vm.sandbox, "Normal", "DriftResolved", message, **data)
    return _store(home, vm.sandbox, {k: v for k, v in known.items() if k != promise})


def _store(home: Path, name: str, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    files.write_json(home / "sandboxes" / name / "drift.json", value)
    return value
