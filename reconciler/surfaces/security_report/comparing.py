"""Two sandboxes' reports side by side: what one's standing VM may do and the other's may not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reconciler.engine.records import STANDING
from reconciler.engine.security_report import SecurityReport, VmReport
from reconciler.errors import Refused
from reconciler.surfaces import render
from reconciler.surfaces.render import Format
from reconciler.surfaces.security_report.document import (
    CAVEAT,
    VERSION,
    configuration,
    verdict_word,
)
from reconciler.surfaces.security_report.lines import (
    BAD,
    GOOD,
    QUIET,
    Line,
    cut,
    draw,
    entry,
    paragraph,
)

EXIT_SAME, EXIT_FAILED, EXIT_DIFFERENT = 0, 1, 2
_MOST = 200
# What each sandbox has for itself, and of that what two strict ones must never share.
_OWN = frozenset({"uid_map", "gid_map", "uid", "gid", "cgroup", "open_files", "data.path"})
_APART = frozenset({"uid_map", "gid_map"})
_LISTED_BY = {"mounts": "target", "kernel_mounts": "target", "rlimits": "name"}


@dataclass(frozen=True)
class Difference:
    """One subject: a part of the configuration or a promise's ID, as each of the two has it."""

    subject: str
    one: Any
    other: Any
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """`own` are the parts that differ because each sandbox has to have its own."""

    reports: tuple[SecurityReport, SecurityReport]
    differences: tuple[Difference, ...]
    own: tuple[str, ...]

    @property
    def status(self) -> int:
        """1 when one of the two has failed, else 2 when they differ, else 0."""
        if any(report.failed for report in self.reports):
            return EXIT_FAILED
        return EXIT_DIFFERENT if self.differences else EXIT_SAME


def compare(one: SecurityReport, other: SecurityReport) -> Comparison:
    """Compare the standing VMs, up or as their next start would be; Refused where there is none.

    What each was launched under is compared field by field, and what was read verdict by verdict:
    the words of a reading tell PIDs and numbers of threads, which are never the same.
    """
    left, right = _standing(one), _standing(other)
    mine, theirs = _traits(left), _traits(right)
    differing = [name for name in dict.fromkeys((*mine, *theirs)) if _differ(mine, theirs, name)]
    found = [Difference(name, mine.get(name), theirs.get(name)) for name in differing]
    if left.spec.isolation == right.spec.isolation == "strict":
        note = "shared, and each must have its own"
        shared = [name for name in mine if name in _APART and name not in differing]
        found += [Difference(name, mine[name], theirs[name], note) for name in shared]
    told = [each for each in found if each.note or each.subject not in _OWN]
    told += _verdicts(left, right)
    own = tuple(name for name in differing if name in _OWN)
    return Comparison((one, other), tuple(told), own)


def _differ(mine: dict[str, Any], theirs: dict[str, Any], name: str) -> bool:
    return bool(mine.get(name) != theirs.get(name))


def _standing(report: SecurityReport) -> VmReport:
    for vm in report.vms:
        if vm.kind == STANDING:
            return vm
    raise Refused(
        f"Of {report.sandbox} there is no standing VM to compare, and none can be started.",
        hint=f"box inspect {report.sandbox} --security-report",
    )


def _traits(vm: VmReport) -> dict[str, Any]:
    known = configuration(vm) or {}
    known.pop("source", None)
    return {
        "isolation": vm.spec.isolation,
        "backend": vm.spec.backend,
        "accelerator": vm.accelerator or None,
        "boundary.fingerprint": vm.boundary.fingerprint if vm.boundary else None,
        **dict(_flat(known, "")),
    }


def _flat(value: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Every field by its path; a list of objects is taken for a mapping by what names them."""
    for name, each in value.items():
        if name in _LISTED_BY:
            key = _LISTED_BY[name]
            items = {item[key]: {k: v for k, v in item.items() if k != key} for item in each}
            yield from ((f"{prefix}{name}.{item}", rest) for item, rest in items.items())
        elif isinstance(each, dict):
            yield from _flat(each, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", each


def _verdicts(left: VmReport, right: VmReport) -> Iterator[Difference]:
    others = {each.promise.id: each for each in right.facts}
    for one in left.facts:
        other = others.get(one.promise.id)
        if other is None or None in (one.verdict, other.verdict) or one.verdict == other.verdict:
            continue
        yield Difference(one.promise.id, *(f"{each.verdict}: {each.have}" for each in (one, other)))


def show(comparison: Comparison, form: Format) -> int:
    """Print it, and return the exit status it stands for."""
    if form == "json":
        render.as_json(document(comparison))
    else:
        draw(lines(comparison), render.console())
    return comparison.status


def document(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain values: schemas/security-diff.schema.json describes it."""
    return {
        "version": VERSION,
        "sandboxes": [report.sandbox for report in comparison.reports],
        "read_at": [report.read_at for report in comparison.reports],
        "verdicts": [verdict_word(report) for report in comparison.reports],
        "differences": [
            {"subject": each.subject, "values": [each.one, each.other], "note": each.note or None}
            for each in comparison.differences
        ],
        "own": list(comparison.own),
        "caveat": CAVEAT,
    }


def lines(comparison: Comparison) -> list[Line]:
    """The comparison for a person."""
    names = [report.sandbox for report in comparison.reports]
    found = list(paragraph(f"{names[0]} and {names[1]}: {_count(comparison)}"))
    for report in comparison.reports:
        style = BAD if report.failed else GOOD
        found += paragraph(f"{report.sandbox} at {report.read_at}: {verdict_word(report)}", style)
    for each in comparison.differences:
        note = f" ({each.note})" if each.note else ""
        found += paragraph(each.subject + note, BAD if each.note else GOOD)
        for name, value in zip(names, (each.one, each.other), strict=True):
            found += entry(cut(name, 11), cut(_shown(value), _MOST))
    if comparison.own:
        found += paragraph(f"differ as they have to: {', '.join(comparison.own)}", QUIET)
    found += paragraph(CAVEAT, QUIET)
    return found


def _count(comparison: Comparison) -> str:
    count = len(comparison.differences)
    if not count:
        return "no difference"
    return "1 difference" if count == 1 else f"{count} differences"


def _shown(value: object) -> str:
    if value is None or value == [] or value == ():
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    return str(value)
