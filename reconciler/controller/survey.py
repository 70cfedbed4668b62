"""A survey: the folder's scan and the records, made into one wish a name."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from reconciler.controller.brake import Absence, Doubt, Ruling, rule
from reconciler.controller.conditions import Condition
from reconciler.controller.desired import Order, Wish, wish_for
from reconciler.controller.entry import SETTLE_SECONDS
from reconciler.controller.folder import Folder, Scan
from reconciler.controller.git import operation_in
from reconciler.controller.lock import FolderMemory, recall, remember
from reconciler.controller.port import Engine
from reconciler.engine.records import SandboxRecord
from reconciler.errors import BoxError

ABSENCE_SECONDS = 1.0
"""How long the same files must be gone, and nothing be renamed, made or removed in the folder:
editors and git take a file away and bring it back, between two looks of ours too."""

_RESTLESS_SECONDS = 30.0
"""After so long a file that was there in no look is gone, however busy the folder is."""

_PASSING_SECONDS = 1.0
_SOON_SECONDS = SETTLE_SECONDS / 2


@dataclass(frozen=True)
class Survey:
    """What is wanted of every name of a folder, and what is said of the folder itself.

    `look_again_seconds`: something is under way, the next survey should come so soon.
    """

    scan: Scan
    wishes: tuple[Wish, ...]
    conditions: tuple[Condition, ...]
    ruling: Ruling
    memory: FolderMemory
    look_again_seconds: float | None

    @property
    def settling(self) -> bool:
        """Whether waiting a little is all that it takes to know more."""
        return self.scan.unsettled or self.ruling.reason == "Settling"


class Surveyor:
    """Surveys one folder. Remembers since when files are gone, which no scan can tell."""

    def __init__(
        self,
        engine: Engine,
        home: Path,
        folder: Folder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._home = home
        self._folder = folder
        self._clock = clock
        self._absent: frozenset[str] = frozenset()
        self._absent_since = 0.0
        self._absent_first = 0.0
        self._changed: int | None = None

    def survey(self, confirmed: str | None = None) -> Survey:
        """Look at the folder now; `confirmed` is the token of a deletion that was meant."""
        # Before the scan: what changes during it is a change since, for the next one.
        changed = self._folder.changed_ns()
        scan = self._folder.scan()
        records, broken = self._records()
        scan = _with_unsure(scan, records)
        memory = recall(self._home, scan.path)
        folder = str(scan.path)
        owned = frozenset(name for name, record in records.items() if record.folder == folder)
        absent = owned - scan.names
        self._date_absence(absent, changed)
        doubt = self._doubt(scan, memory, absent)
        ruling = rule(Absence(folder, owned, absent, memory.held, memory.doomed, doubt, confirmed))
        wishes = [
            _wish(name, scan, records.get(name), ruling) for name in sorted(scan.names | owned)
        ]
        wishes = [_broken(w.name, broken[w.name]) if w.name in broken else w for w in wishes]
        return Survey(
            scan,
            tuple(wishes),
            _folder_conditions(scan, ruling, doubt),
            ruling,
            _updated(memory, scan, ruling),
            self._look_again(scan, ruling),
        )

    def keep(self, survey: Survey) -> None:
        """Remember the folder as surveyed, for the next controller. Raises OSError."""
        if survey.memory != recall(self._home, survey.scan.path):
            remember(self._home, survey.memory)

    def _records(self) -> tuple[dict[str, SandboxRecord], dict[str, str]]:
        found = {}
        broken = {}
        for name in self._engine.names():
            try:
                record = self._engine.record(name)
            except (BoxError, OSError) as error:
                broken[name] = str(error)
                continue
            if record is not None:
                found[name] = record
        return found, broken

    def _date_absence(self, absent: frozenset[str], changed: int | None) -> None:
        """Note since when the same files are gone from a folder that rests."""
        now = self._clock()
        if absent != self._absent:
            self._absent, self._absent_since, self._absent_first = absent, now, now
        elif changed != self._changed and now - self._absent_first < _RESTLESS_SECONDS:
            # One that is away in two looks may have been there between them.
            self._absent_since = now
        self._changed = changed

    def _doubt(self, scan: Scan, memory: FolderMemory, absent: frozenset[str]) -> Doubt | None:
        """Why the absence of files proves nothing now; the first reason that holds."""
        if not absent:
            return None
        if not scan.complete:
            return Doubt(scan.reason, scan.problem or "", passing=True)
        if self._clock() - self._absent_since < ABSENCE_SECONDS:
            return Doubt("Settling", "its Boxfile is gone since a moment", passing=True)
        operation = operation_in(scan.path)
        if operation is not None:
            reason = "StaleGitLock" if operation.stale else "GitBusy"
            message = f"git has not finished: {operation.marker} exists"
            return Doubt(reason, message, passing=not operation.stale)
        if memory.identity != scan.identity:
            return Doubt("SourceReplaced", f"{scan.path} is not the folder it was", passing=False)
        return None

    def _look_again(self, scan: Scan, ruling: Ruling) -> float | None:
        if scan.unsettled:
            return _SOON_SECONDS
        if ruling.reason == "Settling":
            return max(0.0, self._absent_since + ABSENCE_SECONDS - self._clock())
        return _PASSING_SECONDS if ruling.waiting else None


def _with_unsure(scan: Scan, records: dict[str, SandboxRecord]) -> Scan:
    """The scan with what others may have taken away, where a sandbox was made from it."""
    made_from = {each.source for each in records.values()}
    more = tuple(each for each in scan.unsure if str(each.path) in made_from)
    return replace(scan, entries=(*scan.entries, *more)) if more else scan


def _wish(name: str, scan: Scan, record: SandboxRecord | None, ruling: Ruling) -> Wish:
    entries = tuple(entry for entry in scan.entries if entry.name == name)
    # What others put beside a file of ours takes no name from it.
    ours = tuple(entry for entry in entries if not entry.untrusted)
    entries = ours or entries[:1]
    return wish_for(name, entries, record, elsewhere=_elsewhere(scan, record), ruling=ruling)


def _elsewhere(scan: Scan, record: SandboxRecord | None) -> str | None:
    """The Boxfile outside this folder that has the name; None when it is ours to take."""
    folder = str(scan.path)
    if record is None or record.source is None or record.folder == folder:
        return None
    source = Path(record.source)
    ours = folder in {str(source.parent), str(source.parent.parent)}
    return None if ours or _is_gone(source) else record.source


def _is_gone(source: Path) -> bool:
    """Whether there is no such file: one that we may not look at is not gone."""
    try:
        source.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _broken(name: str, message: str) -> Wish:
    return Wish(name, Order.LEAVE, (Condition("Accepted", "False", "BrokenRecord", message),))


def _folder_conditions(scan: Scan, ruling: Ruling, doubt: Doubt | None) -> tuple[Condition, ...]:
    if scan.complete:
        found = [Condition("SourceAvailable", "True", "Complete")]
    else:
        found = [Condition("SourceAvailable", "False", scan.reason, scan.problem or "")]
    if ruling.held:
        names = ", ".join(sorted(ruling.held))
        message = (
            f"{ruling.message}; kept: {names}; if it was meant: {confirm_command(scan, ruling)}"
        )
        found.append(Condition("DeletionHeld", "True", ruling.reason, message))
    if doubt is not None and doubt.reason == "StaleGitLock":
        found.append(Condition("StaleGitLock", "True", doubt.reason, doubt.message))
    return tuple(found)


def confirm_command(scan: Scan, ruling: Ruling) -> str:
    """The exact command that confirms a held deletion."""
    return f"box sync --confirm-deletes {ruling.token} {shlex.quote(str(scan.path))}"


def _updated(memory: FolderMemory, scan: Scan, ruling: Ruling) -> FolderMemory:
    """Pin the folder that is there now, unless sandboxes hang on the one that was."""
    if scan.identity is None or not scan.complete:
        return memory
    kept = replace(memory, held=ruling.held, doomed=ruling.destroy)
    undecided = ruling.held or ruling.waiting
    return kept if undecided else kept.pinned_to(scan.identity)
