"""`plan`, `sync`, `watch`, `status` and `events`: the folder and its controller."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reconciler.controller import once, report
from reconciler.controller.folder import Folder
from reconciler.controller.lock import TwoControllers, leave_confirmation, log_path
from reconciler.controller.port import LocalEngine
from reconciler.controller.survey import Surveyor
from reconciler.engine import journal, space
from reconciler.engine.home import open_home
from reconciler.errors import Missing, Refused
from reconciler.surfaces.cli import tables
from reconciler.surfaces.cli.endings import unwinding
from reconciler.surfaces.cli.terminal import say, tell
from reconciler.surfaces.declared import default_folder
from reconciler.surfaces.render import Format

if TYPE_CHECKING:
    import structlog

Directory = Annotated[
    Path | None,
    typer.Argument(metavar="[DIR]", help="The folder of Boxfiles; BOX_DESIRED, else ./desired."),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="How to print: text or json.")]

_CHANGES = 2
_FOLLOW_SECONDS = 0.2
_OTHER_DELETIONS = "What you confirm is not what would be deleted now."
_SEE_PLAN = "`box plan` shows it, with the command that confirms it"


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    for command in (plan, sync, watch, status, events):
        app.command()(command)


def plan(directory: Directory = None, output: Output = "text") -> int:
    """Show what a sync would do, and why; `!` marks changes that give a sandbox more reach.

    Exit status: 2 when something would happen, else 1 when a Boxfile is bad, else 0.
    """
    home = open_home()
    engine = LocalEngine(home)
    surveyor = Surveyor(engine, home, _folder(directory))
    survey = once.settled_survey(surveyor)
    planned = list(once.plan_once(engine, survey))
    tables.plan(survey, planned, output)
    if any(each.actions for each in planned):
        return _CHANGES
    bad = any(each.wish.faulty or each.error for each in planned)
    return 1 if bad or survey.ruling.held or not survey.scan.complete else 0


def sync(
    directory: Directory = None,
    output: Output = "text",
    *,
    confirm_deletes: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", help="Do the deletions that were held back, as `plan` says."),
    ] = None,
) -> int:
    """Make everything as the Boxfiles in DIR say, once.

    Exit status: 0 when all is so now, 1 when a sandbox could not be made so.
    """
    home = open_home()
    engine = LocalEngine(home)
    folder = _folder(directory)
    surveyor = Surveyor(engine, home, folder)
    try:
        with unwinding(), once.held_folder(home, folder):
            survey = once.settled_survey(surveyor, confirm_deletes)
            _check_confirmed(survey.ruling.token, confirm_deletes)
            surveyor.keep(survey)
            with tables.progress() as show:
                results = []
                for result in once.converge_once(engine, home, survey, show):
                    results.append(result)
                    tables.passed(result, show)
    except TwoControllers:
        if confirm_deletes is None:
            raise
        held = once.settled_survey(surveyor).ruling
        if held.token != confirm_deletes:
            raise Refused(_OTHER_DELETIONS, hint=_SEE_PLAN) from None
        leave_confirmation(home, folder.path, confirm_deletes)
        say("handed to the controller of this folder; `box status` shows what it does")
        return 0
    tables.sync(survey, results, output)
    failed = any(result.failed for result in results)
    return 1 if failed or survey.ruling.held or not survey.scan.complete else 0


def watch(directory: Directory = None) -> int:
    """Keep everything as the Boxfiles in DIR say, until interrupted; the VMs outlive it."""
    from reconciler.controller.log import open_log
    from reconciler.controller.loop import Loop

    home = open_home()
    folder = _folder(directory)
    with once.held_folder(home, folder):
        path = log_path(home, folder.path)
        tell(f"watching {folder.path}; log: {path}")
        with open_log(path) as log, space.watched(home, _log_space(log)):
            # A pool that is being filled must not keep it from seeing an edit, or a VM that died.
            loop = Loop(LocalEngine(home, fills_beside=True), home, folder, log)
            _stop_on_signals(loop)
            loop.run()
    return 0


def _log_space(log: structlog.stdlib.BoundLogger) -> space.Told:
    return lambda name, text: log.warning(text, sandbox=name)


def _stop_on_signals(loop: Any) -> None:  # noqa: ANN401  # its import waits until it is needed
    """The first signal ends the loop in order; a second one ends us at once."""
    heard: list[int] = []

    def handle(signo: int, _frame: object) -> None:
        if heard and signo in (signal.SIGINT, signal.SIGTERM):
            os._exit(128 + signo)
        heard.append(signo)
        loop.stop()

    for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signo) is not signal.SIG_IGN:
            signal.signal(signo, handle)


def status(directory: Directory = None, output: Output = "text") -> int:
    """Show the conditions of DIR's sandboxes; without DIR, those of all that this home knows."""
    home = open_home()
    engine = LocalEngine(home)
    if directory is not None:
        found = report.folder_report(engine, home, directory)
        if not found.sandboxes:
            # A folder that is gone still has a report as long as sandboxes of it are known.
            _folder(directory)
        folders: tuple[report.FolderReport, ...] = (found,)
        alone: tuple[report.SandboxReport, ...] = ()
    else:
        folders, alone = report.all_reports(engine, home)
    tables.status(folders, alone, output)
    return 0


def events(
    name: Annotated[str | None, typer.Argument(help="Only those of this sandbox.")] = None,
    output: Output = "text",
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new ones.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Only check the chain of hashes.")
    ] = False,
) -> int:
    """Show what happened, oldest first; with -o json one object a line.

    About the last 100,000 are kept. With --verify only how many there are, and the first line that
    does not follow from the one before, or that lines or files are missing; of each sandbox's own
    journal too; exit 1 when that is so. It tells what box itself dropped. Who may write to BOX_HOME
    can make a new chain: it shows what was changed by hand, not by who knows how.
    """
    home = open_home()
    if verify:
        return _verify(home, output)
    with journal.reader(home) as reader:
        while True:
            for event in reader.new():
                if name in (None, event.get("sandbox")):
                    tables.event(event, output)
            if not follow:
                return 0
            sys.stdout.flush()
            time.sleep(_FOLLOW_SECONDS)


def _verify(home: Path, output: Output) -> int:
    """Check the chain of all events and those of the sandboxes; JSON is Verified's fields."""
    found, journals = journal.verify(home), journal.verify_journals(home)
    tables.verified(journal.path_of(home), found, journals, output)
    return 0 if all(each.holds for each in (found, *journals.values())) else 1


def _folder(directory: Path | None) -> Folder:
    folder = Folder(directory or default_folder())
    if folder.identity() is None and not folder.path.exists():
        hint = f"name one that is there, or make it: mkdir {folder.path}"
        raise Missing(f"There is no folder {folder.path}.", hint=hint)
    if folder.identity() is None:
        raise Refused(f"{folder.path} is no folder that can be read.")
    folder.check()
    return folder


def _check_confirmed(token: str, confirmed: str | None) -> None:
    """Refuse a confirmation of other deletions than those that are held now."""
    if confirmed is not None and token:
        raise Refused(_OTHER_DELETIONS, hint=_SEE_PLAN)
