"""What is noted of a VM at its start, and the checks against it later: filters and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.confinement import filters
from reconciler.confinement.facts import Fact, Finding, Verdict, conclude, unreadable
from reconciler.confinement.reading import Noted, Unreadable, Withheld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.confinement.policy import Policy
    from reconciler.confinement.reading import Reading, ThreadReading

_FILTER = "seccomp.filter"
_LABEL = "label"


def note(reading: Reading) -> Noted:
    """What a good reading at the start found, to be given to all later ones."""
    threads = [each for process in reading.processes for each in process.threads]
    return Noted(
        filters=frozenset(each.seccomp_filters for each in threads),
        programs=frozenset(
            filters.digest(each.programs) for each in threads if isinstance(each.programs, tuple)
        ),
        labels=frozenset(each.label for each in threads if isinstance(each.label, str)),
        withheld=next(
            (each.programs.why for each in threads if isinstance(each.programs, Withheld)), ""
        ),
        places=frozenset(
            (each.target, each.device, each.root)
            for process in reading.processes
            if not isinstance(process.mounts, Unreadable)
            for each in process.mounts
        ),
        open_files=reading.host.open_files,
    )


def to_json(noted: Noted) -> dict[str, Any]:
    """The JSON object that `from_json` takes."""
    return {
        "filters": sorted(noted.filters),
        "programs": sorted(noted.programs),
        "labels": sorted(noted.labels),
        "withheld": noted.withheld,
        "places": sorted(map(list, noted.places)),
        "open_files": sorted(map(list, noted.open_files)),
    }


def from_json(value: dict[str, Any]) -> Noted:
    """What was written down; ValueError when it is not that."""
    lists = [value.get(name) for name in ("filters", "programs", "labels")]
    kinds = (int, str, str)
    for each, kind in zip(lists, kinds, strict=True):
        if not isinstance(each, list) or not all(type(item) is kind for item in each):
            raise ValueError("not what is noted at a start")
    withheld = value.get("withheld")
    if not isinstance(withheld, str):
        raise ValueError("not what is noted at a start")  # noqa: TRY004
    numbers, programs, labels = (frozenset(each) for each in lists if each is not None)
    places = _rows(value.get("places"), str, str, str)
    open_files = _rows(value.get("open_files"), int, int)
    return Noted(numbers, programs, labels, withheld, places, open_files)


def _rows(value: object, *kinds: type) -> frozenset[tuple[Any, ...]]:
    """A list of lists, each with an item of each kind."""
    if not isinstance(value, list):
        raise ValueError("not what is noted at a start")  # noqa: TRY004
    for row in value:
        if not isinstance(row, list) or [type(item) for item in row] != list(kinds):
            raise ValueError("not what is noted at a start")
    return frozenset(map(tuple, value))


def of_start(reading: Reading) -> Noted | None:
    """What was noted at the VM's start; None at that start, and when it is lost."""
    return None if isinstance(reading.noted, Unreadable) else reading.noted


def lost(reading: Reading) -> tuple[Finding, ...]:
    """That what was noted is lost: part of every fact for which a reading is compared with it."""
    return (unreadable(reading.noted.why),) if isinstance(reading.noted, Unreadable) else ()


def programs(_policy: Policy, reading: Reading) -> Fact:
    """What the filters are: they refuse what no VMM needs, and are those of the start.

    No thread can take one off or change it, and a new thread has its maker's: read at the start and
    counted ever after, they are known.
    """
    want = "refuses what no VMM needs"
    if reading.noted:
        want += ", as at its start"
    threads = [
        (f"PID {process.pid} thread {each.tid}", each)
        for process in reading.processes
        for each in process.threads
        if each.seccomp_filters
    ]
    found = [
        finding for where, each in threads for finding in _wrong_programs(where, each, reading)
    ]
    if found or lost(reading):
        return conclude(_FILTER, want, (*found, *lost(reading)), want)
    noted = of_start(reading) or note(reading)
    if not threads or not noted.programs:
        why = noted.withheld or "not shown at its start" if threads else "there is no filter"
        return Fact(_FILTER, want, why, Verdict.NOT_APPLICABLE)
    have = f"{want}: sha256 {', '.join(sorted(noted.programs))}"
    return Fact(_FILTER, want, have, Verdict.SAME)


def _wrong_programs(where: str, thread: ThreadReading, reading: Reading) -> Iterator[Finding]:
    noted, have = of_start(reading), thread.programs
    if noted and thread.seccomp_filters not in noted.filters:
        yield Finding(
            f"{where}: {thread.seccomp_filters} filters, another number than at its start"
        )
    if isinstance(have, Unreadable):
        yield unreadable(f"{where}: {have.why}")
    elif have is None and reading.noted is None:
        yield unreadable(f"{where}: not read")
    if not isinstance(have, tuple):
        return
    if noted and noted.programs and filters.digest(have) not in noted.programs:
        yield Finding(f"{where}: not the filter of its start")
    try:
        passed = filters.allowed(have, reading.host.machine)
    except KeyError:
        yield unreadable(f"what is a call on {reading.host.machine} is not known")
    except filters.BadProgram as error:
        yield unreadable(f"{where}: a program that cannot be understood ({error})")
    else:
        if passed:
            yield Finding(f"{where}: lets through {', '.join(passed)}")


def label(_policy: Policy, reading: Reading) -> Fact:
    """The label of a security module; none is asked for, so all that counts is that it stays."""
    found: list[Finding] = []
    labels: set[str] = set()
    withheld = ""
    for process in reading.processes:
        for thread in process.threads:
            if isinstance(thread.label, Unreadable):
                found.append(unreadable(f"PID {process.pid}: {thread.label.why}"))
            elif isinstance(thread.label, Withheld):
                withheld = thread.label.why
            else:
                labels.add(thread.label)
    noted = of_start(reading)
    known = noted.labels if noted else frozenset[str]()
    want = " or ".join(sorted(known)) or "one for all threads"
    found += [Finding(each) for each in sorted(labels - known) if noted]
    # A kernel that labels nothing has nothing to compare.
    found += lost(reading) if labels else ()
    if len(labels) > 1 and not noted:
        found.append(Finding(" and ".join(sorted(labels))))
    if found or (labels and not all(each.startswith("unconfined") for each in labels)):
        return conclude(_LABEL, want, found, ", ".join(sorted(labels)))
    why = withheld or f"{', '.join(sorted(labels))}: the host holds it to nothing"
    return Fact(_LABEL, want, why, Verdict.NOT_APPLICABLE)
