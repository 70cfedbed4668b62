"""What `box status` tells: looked at now, with or without a controller at work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.controller.attempt import seen_after
from reconciler.controller.conditions import Condition
from reconciler.controller.desired import Order, Wish
from reconciler.controller.folder import Folder
from reconciler.controller.lock import controller_of, log_path
from reconciler.controller.once import settled_survey
from reconciler.controller.port import Engine
from reconciler.controller.status import SandboxStatus, dated, load_status, status_of_look
from reconciler.controller.survey import Survey, Surveyor
from reconciler.engine.observe import Observation
from reconciler.engine.records import SandboxRecord
from reconciler.errors import BoxError


@dataclass(frozen=True)
class SandboxReport:
    """One sandbox: its wish, what was seen of it and the conditions that follow."""

    wish: Wish
    folder: str | None
    seen: Observation | None
    status: SandboxStatus

    def to_json(self) -> dict[str, Any]:
        """The stable shape of one element of `sandboxes`."""
        seen = self.seen
        identity = seen.vm.identity if seen and seen.running and seen.vm else None
        record = seen.record if seen else None
        source = self.wish.source or (record.source if record else None)
        return {
            "name": self.wish.name,
            "folder": self.folder,
            "source": str(source) if source else None,
            "generation": self.status.generation,
            "declared_state": self.wish.spec.state if self.wish.spec else None,
            "running": bool(seen and seen.running),
            "pid": identity.pid if identity else None,
            "incarnation": seen.vm.incarnation if seen and seen.running and seen.vm else None,
            "conditions": [condition.to_json() for condition in self.status.conditions],
        }


@dataclass(frozen=True)
class FolderReport:
    """One watched folder: who converges it, what is said of it, and its sandboxes."""

    path: Path
    controller_pid: int | None
    log: Path
    conditions: tuple[Condition, ...]
    ignored: tuple[str, ...]
    sandboxes: tuple[SandboxReport, ...]

    def to_json(self) -> dict[str, Any]:
        """The stable shape of one element of `folders`."""
        return {
            "path": str(self.path),
            "controller_pid": self.controller_pid,
            "log": str(self.log),
            "conditions": [condition.of_now() for condition in self.conditions],
            "ignored": list(self.ignored),
        }


def folder_report(engine: Engine, home: Path, path: Path) -> FolderReport:
    """Look at one folder and everything that it declares. Changes nothing."""
    folder = Folder(path)
    survey = settled_survey(Surveyor(engine, home, folder))
    identity = survey.scan.identity
    return FolderReport(
        path=folder.path,
        controller_pid=controller_of(home, identity) if identity else None,
        log=log_path(home, folder.path),
        conditions=survey.conditions,
        ignored=survey.scan.ignored,
        sandboxes=tuple(_sandbox(engine, home, wish, survey) for wish in survey.wishes),
    )


def all_reports(
    engine: Engine, home: Path
) -> tuple[tuple[FolderReport, ...], tuple[SandboxReport, ...]]:
    """Every folder that owns a sandbox of this home, and the sandboxes that no folder owns."""
    folders = set()
    alone = []
    for name in engine.names():
        try:
            record = engine.record(name)
        except (BoxError, OSError) as error:
            alone.append(_odd(engine, name, "BrokenRecord", str(error)))
            continue
        if record is None:
            message = "a VM is left of it, and no record says what it should be"
            alone.append(_odd(engine, name, "Orphan", message))
        elif record.folder is None:
            alone.append(_alone(engine, home, record))
        else:
            folders.add(record.folder)
    reports = (folder_report(engine, home, Path(folder)) for folder in sorted(folders))
    return tuple(reports), tuple(alone)


def _odd(engine: Engine, name: str, reason: str, message: str) -> SandboxReport:
    """A sandbox of which nobody knows what it should be."""
    wish = Wish(name, Order.LEAVE, (Condition("Accepted", "False", reason, message),))
    seen = seen_after(engine, name)
    return SandboxReport(wish, None, seen, status_of_look(wish, seen, SandboxStatus(name)))


def _sandbox(engine: Engine, home: Path, wish: Wish, survey: Survey) -> SandboxReport:
    ours = wish.order is not Order.LEAVE
    seen = seen_after(engine, wish.name) if ours else None
    kept = load_status(home, wish.name) if ours else SandboxStatus(wish.name)
    status = dated(status_of_look(wish, seen, kept), kept, wish.spec)
    return SandboxReport(wish, str(survey.scan.path), seen, status)


def _alone(engine: Engine, home: Path, record: SandboxRecord) -> SandboxReport:
    accepted = Condition("Accepted", "Unknown", "NotWatched", "no watched folder owns it")
    wish = Wish(record.name, Order.HOLD_TO, (accepted,), record.spec, known=True)
    seen = seen_after(engine, record.name)
    kept = load_status(home, record.name)
    return SandboxReport(
        wish, None, seen, dated(status_of_look(wish, seen, kept), kept, record.spec)
    )
