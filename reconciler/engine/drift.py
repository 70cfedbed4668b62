"""Drift: each difference between declared and found is one record, open until it is resolved.

A record is written with the word `untold` before its event, and without it after that. Whatever is
killed in between, the next look finds the word, and whether the event is there: so each event is
written exactly once. All of this is done under the sandbox's lock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reconciler.confinement.facts import Fact
from reconciler.engine import journal
from reconciler.engine.records import VmRecord
from reconciler.linux import files

_RUNNING = "running"
_UNTOLD = "untold"
_KEYS = ("incarnation", "want", "have", "since", "pid", "start_time_ticks")
_OPENED, _RESOLVED, _ACKNOWLEDGED = "Drift", "DriftResolved", "DriftAcknowledged"
_NUMBERED = re.compile(r"\b(PID|thread) \d+")
_OVER = {_RESOLVED: "as declared again", _ACKNOWLEDGED: "acknowledged"}

Entries = dict[str, dict[str, Any]]


def said(facts: Iterable[Fact]) -> str:
    """What differs, for a person: each promise with what was wanted and found."""
    return "; ".join(f"{each.promise}: want {each.want}, have {each.have}" for each in facts)


def open_drifts(home: Path, name: str) -> Entries:
    """The open differences of a sandbox: by promise, what was wanted and found, and since when."""
    return {key: each for key, each in _load(home, name).items() if not _is_over(each)}


def confinement_drifts(home: Path, name: str) -> tuple[str, ...]:
    """The promises of a sandbox's open differences, its running or not aside."""
    return tuple(sorted(promise for promise in open_drifts(home, name) if promise != _RUNNING))


def acknowledge(home: Path, name: str) -> None:
    """Close every open difference in the confinement: a person knows of it, and decided."""
    _change(home, name, dict.fromkeys(confinement_drifts(home, name), _ACKNOWLEDGED))


def vanished(home: Path, vm: VmRecord) -> None:
    """Record that a standing VM's VMM has ended and box did not end it."""
    have = "the VMM ended" if vm.identity else "the VMM was never seen running"
    _change(home, vm.sandbox, {_RUNNING: _entry(vm, "running", have)})


def resolved(home: Path, vm: VmRecord) -> None:
    """Record that a standing VM runs again."""
    _change(home, vm.sandbox, {_RUNNING: _RESOLVED})


def compare(home: Path, vm: VmRecord, facts: tuple[Fact, ...]) -> None:
    """Open a record for each new difference and close those that are no more."""
    found: dict[str, dict[str, Any] | str] = {_RUNNING: _RESOLVED}
    for fact in facts:
        found[fact.promise] = _entry(vm, fact.want, fact.have) if fact.failed else _RESOLVED
    _change(home, vm.sandbox, found)


def _entry(vm: VmRecord, want: str, have: str) -> dict[str, Any]:
    return {
        "incarnation": vm.incarnation,
        "want": want,
        "have": have,
        "since": journal.now(),
        "pid": vm.identity.pid if vm.identity else None,
        "start_time_ticks": vm.identity.start_time_ticks if vm.identity else None,
    }


def _change(home: Path, name: str, found: dict[str, dict[str, Any] | str]) -> None:
    """Bring the records to what was found: by promise an entry, or why an open one is over."""
    known = _load(home, name)
    if any(_word(entry) for entry in known.values()):
        known = _tell(home, name, _still_untold(home, name, known))
    news: Entries = {}
    for promise, now in found.items():
        before = known.get(promise)
        if isinstance(now, str):
            if before is not None:
                news[promise] = {**before, _UNTOLD: now}
        elif before is None or not _is_same(before, now):
            news[promise] = {**now, _UNTOLD: _OPENED}
    if news:
        entries = {**known, **news}
        _store(home, name, entries)
        _tell(home, name, entries)


def _is_same(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether a difference is the one that is open, whichever processes and threads show it now."""
    same_vm = before.get("incarnation") == now["incarnation"]
    return same_vm and _findings(before.get("have")) == _findings(now["have"])


def _findings(have: object) -> frozenset[str]:
    # Threads come and go, and what does not belong in a cgroup may be another one in each pass.
    return frozenset(_NUMBERED.sub(r"\1", str(have)).split("; "))


def _tell(home: Path, name: str, entries: Entries) -> Entries:
    """Write the events of what is untold, then that they are written; what stays open."""
    left: Entries = {}
    for promise, entry in entries.items():
        word = _word(entry)
        if word is not None:
            kind = "Warning" if word == _OPENED else "Normal"
            data = {key: entry.get(key) for key in _KEYS}
            message = f"{promise}: {_said(entry, word)}"
            journal.record(home, name, kind, word, message, promise=promise, **data)
        if not _is_over(entry):
            left[promise] = {key: each for key, each in entry.items() if key != _UNTOLD}
    _store(home, name, left)
    return left


def _said(entry: dict[str, Any], word: str) -> str:
    if word == _OPENED:
        return f"want {entry.get('want')}, have {entry.get('have')}"
    return f"{_OVER[word]}, after having been: {entry.get('have')}"


def _still_untold(home: Path, name: str, entries: Entries) -> Entries:
    """The same without what was told right before whoever told it was killed."""
    events = list(journal.read_events(home, name))
    left = {}
    for promise, entry in entries.items():
        word = _word(entry)
        keys = {"reason": word, "promise": promise}
        keys |= {key: entry.get(key) for key in ("since", "incarnation")}
        if word is None or not any(_has(event, keys) for event in events):
            left[promise] = entry
        elif not _is_over(entry):
            left[promise] = {key: each for key, each in entry.items() if key != _UNTOLD}
    return left


def _has(event: dict[str, Any], keys: dict[str, Any]) -> bool:
    return all(event.get(key) == value for key, value in keys.items())


def _word(entry: dict[str, Any]) -> str | None:
    """The reason of the event that may not have been written for an entry."""
    word = entry.get(_UNTOLD)
    return word if word in (_OPENED, *_OVER) else None


def _is_over(entry: dict[str, Any]) -> bool:
    return _word(entry) in _OVER


def _load(home: Path, name: str) -> Entries:
    try:
        value = files.read_json(home / "sandboxes" / name / "drift.json")
    except (FileNotFoundError, files.BrokenFile):
        return {}
    return {key: each for key, each in value.items() if isinstance(each, dict)}


def _store(home: Path, name: str, value: Entries) -> None:
    files.write_json(home / "sandboxes" / name / "drift.json", value)
