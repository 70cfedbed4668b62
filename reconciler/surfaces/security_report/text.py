"""The security report for a person: one screen, groups of facts, details where one is not so."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from reconciler.boxfile.problems import printable
from reconciler.confinement.facts import Verdict
from reconciler.engine import accelerator, contact
from reconciler.engine.freezing import Frozen
from reconciler.engine.security_report import (
    DOWN,
    ROLES,
    STARTING,
    Checked,
    SecurityReport,
    VmReport,
)
from reconciler.surfaces import render
from reconciler.surfaces.security_report.document import CAVEAT, host_id
from reconciler.surfaces.security_report.lines import (
    BAD,
    GOOD,
    MARKS,
    QUIET,
    WARNING,
    Line,
    cut,
    draw,
    entry,
    mark_of,
    paragraph,
    path_end,
)
from reconciler.surfaces.security_report.summary import summaries

_GROUPS = ("identity", "privileges", "seccomp", "namespaces", "network", "limits", "files")
# Facts that are told as they were found: no configuration holds what the kernel made of it.
_TOLD = frozenset({"seccomp.filter"})
_MOST_DETAILS, _MOST_TOLD = 3, 140
_MOST_WANTED, _MOST_FOUND, _MOST_IDS = 50, 70, 60


def show(report: SecurityReport) -> None:
    """Print it; coloured only on a terminal."""
    draw(lines(report), render.console())


def lines(report: SecurityReport) -> list[Line]:
    """The report, line by line."""
    first = report.vms[0] if report.vms else None
    parts = [_title(report)]
    if first:
        parts += [_head(report, first), _groups(first)]
    parts += [_others(report, first), _lost(report), _details(report), _end(report)]
    return list(chain.from_iterable(parts))


def _title(report: SecurityReport) -> Iterator[Line]:
    verdicts = [each.verdict for vm in report.vms for each in (*vm.facts, vm.boundary) if each]
    read = [each for each in verdicts if each is not None]
    other = read.count(Verdict.NOT_APPLICABLE)
    good = read.count(Verdict.SAME)
    if report.failed:
        bad = len(read) - good - other
        parts = [f"{bad} of {len(read)} facts differ or cannot be read"] if bad else []
        parts += [f"nothing can be told of {len(report.lost)} VMs"] if report.lost else []
        text = ", ".join(parts)
        return paragraph(f"{report.sandbox}: NOT AS PROMISED: {text}", BAD)
    if report.verdict is None:
        return paragraph(f"{report.sandbox}: no VMM of it runs")
    also = f", {other} not applicable here" if other else ""
    return paragraph(f"{report.sandbox}: as promised, {good} facts read{also}")


def _head(report: SecurityReport, vm: VmReport) -> Iterator[Line]:
    yield from _isolation(vm)
    yield from _machine(vm)
    yield from _process(report, vm)
    known = vm.boundary
    if known:
        when = f"; proven {known.proven_at}" if known.proven_at else ""
        mark = MARKS[known.verdict]
        style = BAD if known.verdict in {Verdict.DIFFERS, Verdict.UNREADABLE} else GOOD
        yield from entry("kernel", known.have + when, mark=mark, style=style)


def _isolation(vm: VmReport) -> Iterator[Line]:
    known = vm.policy
    uid = host_id(known.uid_map, known.process_uid) if known else None
    whose = f"UID {uid}" if uid is not None else "a UID that cannot be told"
    if vm.spec.isolation == "standard":
        text = f"standard: an escape lands in YOUR ACCOUNT, {whose}"
        yield from entry("isolation", text, style=WARNING)
    else:
        text = f"strict: an escape lands in {whose}, not in your account"
        yield from entry("isolation", text)


def _machine(vm: VmReport) -> Iterator[Line]:
    if vm.accelerator == accelerator.KVM:
        yield from entry("machine", "QEMU on KVM")
    elif vm.accelerator:
        why = cut(vm.emulated_because, _MOST_FOUND)
        text = f"EMULATED: no security boundary QEMU vouches for. No KVM: {why}"
        yield from entry("machine", text, style=WARNING)
    else:
        text = "QEMU; whether on KVM is not known before it has been tried on this boot"
        yield from entry("machine", text)


def _process(report: SecurityReport, vm: VmReport) -> Iterator[Line]:
    if vm.state == DOWN:
        yield from entry("VMM", f"not up; rendered {report.read_at} from {vm.source}")
    elif vm.state == STARTING or vm.who is None:
        yield from entry("VMM", "being started: it is read back before anything runs in it")
    else:
        began = f"{vm.started_at} (tick {vm.who.start_time_ticks} of this boot)"
        yield from entry("VMM", f"PID {vm.who.pid}, started {began}")
        yield from entry("read", f"{report.read_at}; configured by {path_end(vm.source)}")
    if vm.frozen:
        yield from entry("frozen", _frozen(report.sandbox, vm.frozen), style=WARNING)


def _frozen(name: str, known: Frozen) -> str:
    if not known.stands:
        return f"noted {known.since}, but it RUNS: the next pass freezes it again"
    if known.reason == contact.NO_SPACE:
        return f"it stands still since {known.since}, until the host's file system has room"
    return f"it stands still since {known.since}; box thaw {name} lets it go on"


def _groups(vm: VmReport) -> Iterator[Line]:
    by_group: dict[str, list[Checked]] = defaultdict(list)
    for fact in vm.facts:
        by_group[fact.promise.group].append(fact)
    if not by_group:
        return
    known = summaries(vm)
    for group in (*_GROUPS, *(each for each in by_group if each not in _GROUPS)):
        facts = by_group.get(group, [])
        verdict = mark_of({each.verdict for each in facts})
        ids = ", ".join(each.promise.id for each in facts)
        texts = known.get(group) or [ids if vm.policy else "its configuration cannot be read"]
        style = BAD if any(each.failed for each in facts) else GOOD
        yield from entry(group, texts[0], mark=MARKS[verdict], style=style)
        shown = [each.have for each in facts if each.promise.id in _TOLD and not each.failed]
        for text in (*texts[1:], *(cut(have, _MOST_TOLD) for have in shown if have)):
            yield from entry("", text, style=style)


def _others(report: SecurityReport, first: VmReport | None) -> Iterator[Line]:
    """One entry for all VMs of a kind that are as promised, one for each that is not."""
    others = [vm for vm in report.vms if vm is not first]
    for kind, role in ROLES.items():
        of_kind = [vm for vm in others if vm.kind == kind]
        starting = sum(vm.state == STARTING for vm in of_kind)
        if starting:
            yield from entry(role, f"{starting} being got ready: read back before use")
        read = [vm for vm in of_kind if vm.who and vm.state != STARTING]
        good = [vm for vm in read if not _bad(vm)]
        if good:
            pids = " ".join(str(vm.who.pid) for vm in good if vm.who)
            text = f"{len(good)} VMs, PID {pids}: all {len(good[0].facts)} facts of each read"
            yield from entry(role, text, mark="ok")
        yield from _wrong(role, [vm for vm in read if _bad(vm)])


def _wrong(role: str, bad: list[VmReport]) -> Iterator[Line]:
    style, mark = BAD, "NOT SO"
    for vm in bad[:_MOST_DETAILS]:
        pid = vm.who.pid if vm.who else "?"
        text = f"{cut(vm.vm, 80)}, PID {pid}: {len(vm.failed)} facts are not as promised"
        yield from entry(role, text, mark=mark, style=style)
    if (more := len(bad) - _MOST_DETAILS) > 0:
        yield from entry(role, f"and {more} more that are not", mark=mark, style=style)


def _bad(vm: VmReport) -> bool:
    boundary = vm.boundary.verdict if vm.boundary else None
    return bool(vm.failed) or boundary in {Verdict.DIFFERS, Verdict.UNREADABLE}


def _lost(report: SecurityReport) -> Iterator[Line]:
    if report.lost:
        text = f"nothing can be told of {', '.join(report.lost)}: the record is broken or gone"
        yield from entry("VMs", cut(text, 240), mark=MARKS[Verdict.UNREADABLE], style=BAD)


def _details(report: SecurityReport) -> Iterator[Line]:
    """What is not so: what was found in the same words is told once, differences first."""
    found: dict[tuple[Verdict | None, str], list[tuple[str, Checked]]] = defaultdict(list)
    for vm in report.vms:
        for fact in vm.failed:
            found[fact.verdict, fact.have or ""].append((vm.vm, fact))
    ranked = sorted(found.items(), key=lambda each: each[0][0] is not Verdict.DIFFERS)
    several = len(report.vms) > 1
    for (verdict, have), pairs in ranked[:_MOST_DETAILS]:
        names = ", ".join(dict.fromkeys(name for name, _ in pairs))
        where = f"{cut(names, _MOST_IDS)}: " if several else ""
        facts = {fact.promise.id: fact for _, fact in pairs}
        yield from paragraph(f"{MARKS[verdict]} {where}{_detail(have, list(facts.values()))}", BAD)
    rest = [fact.promise.id for _, pairs in ranked[_MOST_DETAILS:] for _, fact in pairs]
    if rest:
        yield from paragraph(f"and {cut(', '.join(dict.fromkeys(rest)), 140)}", BAD)


def _detail(have: str, facts: list[Checked]) -> str:
    first = facts[0]
    found = cut(printable(have), _MOST_FOUND)
    if len(facts) > 1:
        ids = cut(", ".join(each.promise.id for each in facts), _MOST_IDS)
        return f"{len(facts)} facts ({ids}): have {found}"
    want = cut(printable(first.want or ""), _MOST_WANTED)
    look = f" [{first.promise.read}]" if first.promise.read else ""
    return f"{first.promise.id}: want {want}, have {found}{look}"


def _end(report: SecurityReport) -> Iterator[Line]:
    yield from paragraph(CAVEAT if report.verdict else "Nothing was read.", QUIET)
    if report.failed:
        yield from paragraph("All of it: --security-report=json", QUIET)
