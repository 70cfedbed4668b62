"""Plans, results, status and events as tables and as JSON."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reconciler.boxfile.problems import printable
from reconciler.controller import conditions
from reconciler.controller.desired import Wish
from reconciler.controller.once import Converged, Planned, Report
from reconciler.controller.report import FolderReport, SandboxReport
from reconciler.controller.survey import Survey
from reconciler.engine import contact
from reconciler.engine.chain_check import Verified
from reconciler.engine.chain_files import older_path
from reconciler.engine.plan import Action
from reconciler.surfaces import render
from reconciler.surfaces.render import Format, as_json, table


def plan(survey: Survey, planned: Sequence[Planned], output: Format) -> None:
    """A plan: {"folder", "conditions", "sandboxes": [{"name", "file", "actions", "error"}]}."""
    if output == "json":
        as_json({**_survey_json(survey), "sandboxes": [_planned_json(each) for each in planned]})
        return
    _complaints(survey)
    rows = [row for each in planned for row in _plan_rows(each)]
    table(("", "SANDBOX", "ACTION", "WHY"), rows)
    if not any(each.actions for each in planned):
        sys.stdout.write("nothing to do\n")


def _plan_rows(planned: Planned) -> Iterator[tuple[str, str, str, str]]:
    wish = planned.wish
    for action in planned.actions:
        mark = "!" if action.widening else ""
        yield mark, wish.name, str(action.kind), action.reason
    if planned.error is not None:
        yield ("", wish.name, "-", str(planned.error))
    elif not planned.actions:
        yield ("", wish.name, "-", _why_nothing(planned))


def _why_nothing(planned: Planned) -> str:
    """Why nothing would be done: that it waits for somebody is not that it is as declared."""
    wish = planned.wish
    if wish.accepted.status == "True":
        for each in conditions.of_sandbox(wish.spec, planned.seen, None):
            if each.type == "Frozen" or each.reason == "StoppedForDrift":
                return f"{each.reason}: {each.message}"
    return _why(wish)


def _planned_json(planned: Planned) -> dict[str, Any]:
    return {
        **_wish_json(planned.wish),
        "actions": [_action_json(action) for action in planned.actions],
        "error": str(planned.error) if planned.error else None,
    }


def sync(survey: Survey, results: Sequence[Converged], output: Format) -> None:
    """A sync: as a plan, each sandbox with "state", "confined", "ready" and its "conditions"."""
    if output == "json":
        as_json({**_survey_json(survey), "sandboxes": [_converged_json(each) for each in results]})
        return
    _complaints(survey)
    table(("SANDBOX", "DONE", "STATE", "CONFINED", "WHY"), (_sync_row(each) for each in results))


# Conditions that say why something is not as it should be.
_TOLD = frozenset({"Ready", "Stalled", "DeletionHeld", "Frozen", "Warm"})


def _sync_row(result: Converged) -> tuple[object, ...]:
    ready = result.status.condition("Ready")
    if ready is not None and ready.status != "True":
        why = f"{ready.reason}: {ready.message}" if ready.message else ready.reason
        if result.wish.faulty and result.wish.problems:
            why = result.wish.accepted.reason
    else:
        why = "; ".join(action.reason for action in result.actions) or _why(result.wish)
    done = ", ".join(dict.fromkeys(str(action.kind) for action in result.actions))
    return result.wish.name, done or "-", _state(result), _confined(result), why


def _state(result: Converged) -> str:
    if result.seen is None or result.seen.record is None:
        return "-"
    if result.seen.running:
        frozen = result.seen.frozen
        if frozen is not None:
            return "paused" if frozen.reason == contact.NO_SPACE else "frozen"
        return "running"
    return "built" if result.seen.built else "stopped"


def _confined(result: Converged) -> bool | None:
    return result.seen.confined if result.seen else None


def _converged_json(result: Converged) -> dict[str, Any]:
    ready = result.status.condition("Ready")
    return {
        **_wish_json(result.wish),
        "actions": [_action_json(action) for action in result.actions],
        "state": _state(result),
        "confined": _confined(result),
        "ready": ready is not None and ready.status == "True",
        "conditions": [condition.to_json() for condition in result.status.conditions],
    }


def status(folders: Sequence[FolderReport], alone: Sequence[SandboxReport], output: Format) -> None:
    """A status: {"folders": [...], "sandboxes": [...]}, see their `to_json`."""
    sandboxes = [sandbox for folder in folders for sandbox in folder.sandboxes] + list(alone)
    if output == "json":
        as_json(
            {
                "folders": [folder.to_json() for folder in folders],
                "sandboxes": [sandbox.to_json() for sandbox in sandboxes],
            }
        )
        return
    for folder in folders:
        by = f"PID {folder.controller_pid}" if folder.controller_pid else "no controller"
        sys.stdout.write(f"{printable(str(folder.path))} ({by})\n")
        for condition in folder.conditions:
            if (condition.type == "SourceAvailable") != (condition.status == "True"):
                sys.stdout.write(f"  {condition.type}: {printable(condition.message)}\n")
    columns = ("SANDBOX", "READY", "ACCEPTED", "BUILT", "RUNNING", "CONFINED", "WHY")
    table(columns, (_status_row(sandbox) for sandbox in sandboxes))


def _status_row(sandbox: SandboxReport) -> tuple[object, ...]:
    found = {condition.type: condition for condition in sandbox.status.conditions}
    words = [
        found[kind].status if kind in found else "-"
        for kind in ("Ready", "Accepted", "Built", "Running", "Confined")
    ]
    reasons = [
        f"{each.reason}: {each.message}" if each.message else each.reason
        for each in found.values()
        if each.type in _TOLD and each.reason not in {"Converged", "Filled"}
    ]
    if not reasons and found["Accepted"].status != "True":
        reasons = [found["Accepted"].reason]
    return sandbox.wish.name, *words, "\n".join(reasons)


def event(value: Mapping[str, Any], output: Format) -> None:
    """One event on one line."""
    if output == "json":
        sys.stdout.write(json.dumps(value, sort_keys=True) + "\n")
        return
    words = (value.get(key) or "-" for key in ("time", "sandbox", "type", "reason", "message"))
    sys.stdout.write("  ".join(printable(str(word)) for word in words) + "\n")


def verified(
    file: Path, found: Verified, journals: Mapping[Path, Verified], output: Format
) -> None:
    """What checking the chain of all events came to, and those of the sandboxes' journals."""
    if output == "json":
        sandboxes = [
            {"sandbox": path.parent.name, **_verified_json(path, each)}
            for path, each in journals.items()
        ]
        as_json({**_verified_json(file, found), "sandboxes": sandboxes})
        return
    sys.stdout.write(f"{_verified_text(file, found)}\n")
    bad = {path: each for path, each in journals.items() if not each.holds}
    for path, each in bad.items():
        sys.stdout.write(f"{printable(path.parent.name)}: {_verified_text(path, each)}\n")
    if len(journals) > len(bad):
        sys.stdout.write(
            f"{len(journals) - len(bad)} of {len(journals)} journals of sandboxes hold\n"
        )


def _verified_json(file: Path, found: Verified) -> dict[str, Any]:
    return {"file": str(file), **asdict(found), "holds": found.holds}


def _verified_text(file: Path, found: Verified) -> str:
    name = printable(str(file))
    if found.gone is not None:
        where = printable(str(older_path(file, found.gone)))
        text = f"{where} is gone, and box did not drop it; the {found.events} before it hold"
    elif found.broken_line is not None:
        path = file if found.older is None else older_path(file, found.older)
        where = f"line {found.broken_line} of {printable(str(path))}"
        text = f"{where} does not follow from the one before; the {found.events} before it do"
    elif found.cut:
        end = f"the end of {name} is not where it was"
        text = f"{end}: lines behind the {found.events} that hold may be gone"
    else:
        text = f"{found.events} events, each follows from the one before"
    if found.dropped:
        since = printable(found.since or "now")
        text += f"\n{found.dropped} older events, from before {since}, were dropped by box"
    return text


@contextlib.contextmanager
def progress() -> Iterator[Report]:
    """A function that tells what is being done on stderr: a spinner there, silence elsewhere."""
    console = render.console(stderr=True)
    if not console.is_terminal:
        yield lambda _name, _text: None
        return
    with console.status("looking") as spinner:
        yield lambda name, text: spinner.update(render.cell(f"{name}: {text}"))


def passed(result: Converged, _show: Report) -> None:
    """One line on stderr for a sandbox that is through, where somebody watches."""
    if sys.stderr.isatty():
        mark = "failed" if result.failed else "done"
        sys.stderr.write(f"{printable(result.wish.name)}: {mark}\n")


def _complaints(survey: Survey) -> None:
    """Print what is wrong with files and folder, each place for an editor to jump to."""
    for wish in survey.wishes:
        for problem in wish.problems:
            sys.stderr.write(f"{problem}\n")
        if wish.faulty and not wish.problems:
            sys.stderr.write(
                f"{printable(wish.name)}: {wish.accepted.reason}: "
                f"{printable(wish.accepted.message)}\n"
            )
    for condition in survey.conditions:
        if (condition.type == "SourceAvailable") != (condition.status == "True"):
            sys.stderr.write(f"{condition.type}: {printable(condition.message)}\n")


def _why(wish: Wish) -> str:
    accepted = wish.accepted
    if accepted.status == "True":
        return "as declared"
    return f"{accepted.reason}: {accepted.message}" if accepted.message else accepted.reason


def _survey_json(survey: Survey) -> dict[str, Any]:
    return {
        "folder": str(survey.scan.path),
        "conditions": [condition.of_now() for condition in survey.conditions],
        "ignored": list(survey.scan.ignored),
    }


def _wish_json(wish: Wish) -> dict[str, Any]:
    return {
        "name": wish.name,
        "source": str(wish.source) if wish.source else None,
        "accepted": wish.accepted.status,
        "reason": wish.accepted.reason,
        "message": wish.accepted.message,
        "problems": [render.problem_json(problem) for problem in wish.problems],
    }


def _action_json(action: Action) -> dict[str, Any]:
    return {
        "kind": str(action.kind),
        "reason": action.reason,
        "widening": list(action.widening),
        "changes": [asdict(change) for change in action.changes],
    }
