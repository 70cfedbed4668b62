"""What the doctor found, on a screen of 80 by 40: what failed first, what is well in few lines."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.engine.host.check import Bearing, Check, Group, Status
from reconciler.surfaces.security_report.lines import (
    BAD,
    GOOD,
    QUIET,
    WARNING,
    WIDTH,
    Line,
    cut,
    wrapped,
)

_MARKS = {
    Status.FAILED: ("FAILED", BAD),
    Status.FINDING: ("finding", WARNING),
    Status.OK: ("ok", GOOD),
    Status.NOT_APPLICABLE: ("n/a", QUIET),
}
_INDENT = 9
_TEXT = WIDTH - _INDENT
_EFFECTS = {
    "kept_by": "no {isolations} sandbox starts without; on it rest",
    "unread": "not read here, under {isolations}:",
    "weakened": "kept, and gone around under {isolations}:",
}


def lines(checks: tuple[Check, ...]) -> list[Line]:
    """All lines, failures first."""
    found = [Line(_summary(checks))]
    for status in (Status.FAILED, Status.FINDING):
        for check in checks:
            if check.status is status:
                found += _whole(check)
    quiet = [each for each in checks if each.status in (Status.OK, Status.NOT_APPLICABLE)]
    for check in quiet:
        if _has_a_line(check):
            found += _entry(check.status, cut(f"{check.id}: {check.seen.found}", _TEXT))
    for status in (Status.OK, Status.NOT_APPLICABLE):
        ids = [each.id for each in quiet if each.status is status and not _has_a_line(each)]
        if ids:
            found += _entry(status, ", ".join(ids))
    return found


def _has_a_line(check: Check) -> bool:
    if check.status is Status.NOT_APPLICABLE:
        return check.bearing is not None
    return check.group is not Group.HOST


def _summary(checks: tuple[Check, ...]) -> str:
    count = {status: sum(each.status is status for each in checks) for status in Status}
    tried = " and ".join(sorted({f"UID {each.tried_as}" for each in checks}))
    findings = f"{count[Status.FINDING]} finding{'' if count[Status.FINDING] == 1 else 's'}"
    return f"As {tried}: {count[Status.FAILED]} failed, {findings}, {count[Status.OK]} ok"


def _whole(check: Check) -> Iterator[Line]:
    yield from _entry(check.status, f"{check.id}: {check.seen.found}")
    for part in wrapped(f"fix: {check.seen.fix}", _TEXT):
        yield Line(" " * _INDENT + part)
    if check.bearing is not None and check.status is Status.FAILED:
        for part in wrapped(_told(check.bearing), _TEXT):
            yield Line(" " * _INDENT + part, QUIET)


def _told(bearing: Bearing) -> str:
    effect = _EFFECTS[bearing.effect].format(isolations=" or ".join(bearing.isolations))
    return f"{effect} {', '.join(bearing.promises)}"


def _entry(status: Status, text: str) -> Iterator[Line]:
    mark, style = _MARKS[status]
    first = f"{mark:<{_INDENT}}"
    for part in wrapped(text, _TEXT):
        yield Line((first + part).rstrip(), style)
        first = " " * _INDENT
