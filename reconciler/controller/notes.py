"""What the controller tells: a line of log on each transition, an event where it matters."""

from __future__ import annotations

from pathlib import Path

import structlog

from reconciler.controller.log import News
from reconciler.controller.survey import Survey
from reconciler.engine import journal
from reconciler.engine.outcome import Again, Done, GaveUp, Outcome
from reconciler.errors import BoxError

FOLDER = "folder"


class Notes:
    """Says each thing when it becomes so, reminds of it ever less often, and says when it ends."""

    def __init__(self, home: Path, log: structlog.stdlib.BoundLogger) -> None:
        self._home = home
        self._log = log
        self._news = News()

    def trouble(self, name: str, topic: str, text: str) -> None:
        """Something is wrong with `name` (a sandbox, or FOLDER)."""
        times = self._news.count(name, topic, text)
        if times:
            self._log.warning(text, about=name, topic=topic, times=times)

    def over(self, name: str, topic: str) -> None:
        """It is not any more."""
        if self._news.over(name, topic):
            self._log.info("over", about=name, topic=topic)

    def surveyed(self, survey: Survey) -> None:
        """Tell what is wrong with the folder and its files."""
        for wish in survey.wishes:
            if wish.faulty:
                self.trouble(wish.name, "file", f"{wish.accepted.reason}: {wish.accepted.message}")
            elif wish.accepted.status == "True":
                self.over(wish.name, "file")
        self._folder_conditions(survey)
        if survey.scan.ignored:
            names = ", ".join(survey.scan.ignored)
            if self._news.count(FOLDER, "ignored", names) == 1:
                self._log.info("ignored files that are not called like a Boxfile", names=names)

    def _folder_conditions(self, survey: Survey) -> None:
        wrong = {
            condition.type: condition
            for condition in survey.conditions
            if (condition.type == "SourceAvailable") != (condition.status == "True")
        }
        for kind in ("SourceAvailable", "DeletionHeld", "StaleGitLock"):
            condition = wrong.get(kind)
            if condition is None:
                self.over(FOLDER, kind)
                continue
            text = f"{condition.reason}: {condition.message}"
            times = self._news.count(FOLDER, kind, text)
            if times:
                self._log.warning(text, about=FOLDER, topic=kind, times=times)
            if times == 1:
                self._event("", kind, text)

    def watching(self, degraded: str | None) -> None:
        """Tell whether the file system's events can be relied on."""
        if degraded is None:
            self.over(FOLDER, "watch")
        else:
            self.trouble(FOLDER, "watch", f"scanning every second as well: {degraded}")

    def ended(self, name: str) -> None:
        """Tell that a VMM has ended; whether it should have, the next pass finds out."""
        self._log.info("a VMM has ended", sandbox=name)

    def working(self, name: str, text: str) -> None:
        """Tell what is being done."""
        self._log.info(text, sandbox=name)

    def passed(self, name: str, outcome: Outcome, *, stalled: bool) -> None:
        """Tell how a pass went."""
        match outcome:
            case Done(actions=actions):
                self.over(name, "pass")
                for action in actions:
                    wider = {"widening": list(action.widening)} if action.widening else {}
                    self._log.info(str(action.kind), sandbox=name, why=action.reason, **wider)
            case Again(error=error):
                self.trouble(name, "pass", str(error))
            case GaveUp(error=error):
                self.trouble(name, "pass", f"given up until its Boxfile changes: {error}")
        self._stall(name, stalled=stalled)

    def _stall(self, name: str, *, stalled: bool) -> None:
        if not stalled:
            self.over(name, "stalled")
        elif self._news.count(name, "stalled", "it fails again and again") == 1:
            self._log.warning("stalled: it fails again and again", sandbox=name)
            self._event(name, "Stalled", "it fails again and again; tries are far between now")

    def broke(self, name: str, error: BaseException) -> None:
        """Tell of a mistake of our own, with its traceback."""
        if self._news.count(name, "bug", repr(error)):
            self._log.error("a pass broke", sandbox=name, exc_info=error)

    def _event(self, name: str, reason: str, message: str) -> None:
        try:
            journal.record(self._home, name, "Warning", reason, message)
        except (OSError, BoxError) as error:
            self.trouble(FOLDER, "events", f"an event could not be recorded: {error}")
