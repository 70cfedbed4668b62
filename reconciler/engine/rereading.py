"""Read a running VM's VMM beside what was noted at its start, and beside other sandboxes' VMs."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.confinement import judging, noting
from reconciler.engine import records
from reconciler.linux import files, neighbours, reading

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.confinement.facts import Fact
    from reconciler.confinement.policy import Policy
    from reconciler.confinement.reading import Neighbour, Noted
    from reconciler.engine.records import VmRecord
    from reconciler.linux.identity import ProcessIdentity

_NOTED = "start.json"
_AGE_SECONDS = 5.0


def judge_start(
    home: Path, directory: Path, vm: str, who: ProcessIdentity, policy: Policy
) -> tuple[Fact, ...]:
    """Read the VMM of a VM that nobody has used yet; what it is like is noted in `directory`."""
    around = _look_around(home, but=records.sandbox_of(vm))
    read = reading.read_process(who, policy, neighbours=around)
    noted = noting.note(read)
    files.write_json(directory / _NOTED, noting.to_json(noted), durable=False)
    # Where its mounts lie is judged now, and only later by where they lay now.
    asked = replace(noted, places=frozenset())
    return judging.judge(policy, replace(read, noted=asked))


def judge_again(home: Path, vm: VmRecord, policy: Policy) -> tuple[Fact, ...]:
    """Read the VMM of a running VM again, none of whose threads stands still for it.

    Raises OSError and BrokenFile when what was noted cannot be read.
    """
    if vm.identity is None:
        return ()
    noted = _noted(vm.directory(home))
    for around in (_seen_around, _look_around):
        others = _others(vm.vm, around(home))
        read = reading.read_process(vm.identity, policy, noted=noted, neighbours=others)
        facts = judging.judge(policy, read)
        # What was seen a while ago may be gone, and its namespaces' numbers given anew.
        if not any(fact.failed and fact.promise.startswith("apart.") for fact in facts):
            break
    return facts


def _others(vm: str, around: dict[str, Neighbour]) -> dict[str, Neighbour]:
    """The VMs of other sandboxes: those of one sandbox have its slot in common."""
    own = records.sandbox_of(vm)
    return {name: each for name, each in around.items() if records.sandbox_of(name) != own}


def _noted(directory: Path) -> Noted | None:
    """What was noted at the start; None for a VM that an earlier version of box started."""
    path = directory / _NOTED
    try:
        return noting.from_json(files.read_json(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise files.BrokenFile(f"{path} is not what box notes at a start.") from error


_seen: dict[Path, tuple[float, dict[str, Neighbour]]] = {}


def _seen_around(home: Path) -> dict[str, Neighbour]:
    """`_look_around`, or its last answer when that is only seconds old."""
    at, found = _seen.get(home, (0.0, {}))
    if not at or time.monotonic() - at > _AGE_SECONDS:
        return _look_around(home)
    return found


def _look_around(home: Path, *, but: str | None = None) -> dict[str, Neighbour]:
    """All running VMs of this home, whatever they are for, by name; those of `but` left out."""
    known = {
        each.vm: each.identity
        for each in records.vm_records(home)
        if each.identity and each.sandbox != but
    }
    found = neighbours.read_neighbours(known)
    if but is None:
        _seen[home] = time.monotonic(), found
    return dict(found)
