"""Read a running VM's VMM beside what was noted at its start, and beside other sandboxes' VMs."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.confinement import judging, noting
from reconciler.confinement.reading import Unreadable
from reconciler.engine import contact, records
from reconciler.engine.records import STANDING
from reconciler.linux import files, neighbours, reading

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.confinement.facts import Fact
    from reconciler.confinement.policy import Policy
    from reconciler.confinement.reading import Neighbour, Noted
    from reconciler.engine.records import VmRecord
    from reconciler.linux.identity import ProcessIdentity

_AGE_SECONDS = 5.0


def judge_start(
    home: Path, directory: Path, vm: str, who: ProcessIdentity, policy: Policy
) -> tuple[Fact, ...]:
    """Read the VMM of a VM that nobody has used yet; what it is like is noted in `directory`."""
    around = _look_around(home, but=records.sandbox_of(vm))
    read = reading.read_process(who, policy, neighbours=around)
    noted = noting.note(read)
    files.write_json(directory / contact.START, noting.to_json(noted), durable=False)
    # Where its mounts lie is judged now, and only later by where they lay now.
    asked = replace(noted, places=frozenset())
    return judging.judge(policy, replace(read, noted=asked))


def judge_again(home: Path, vm: VmRecord, policy: Policy) -> tuple[Fact, ...]:
    """Read the VMM of a running VM again, none of whose threads stands still for it.

    What was noted at its start is there as soon as its record has a process: where it is lost, the
    facts that rest on it are unreadable. Raises OSError when our own side cannot be read.
    """
    if vm.identity is None:
        return ()
    noted = _noted(home, vm)
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


def _noted(home: Path, vm: VmRecord) -> Noted | Unreadable:
    """What was noted at the start, or why that is lost and what to do."""
    path = vm.directory(home) / contact.START
    try:
        return noting.from_json(files.read_json(path))
    except FileNotFoundError:
        why = f"{path} is missing"
    except OSError as error:
        why = f"{path}: {error.strerror}"
    except files.BrokenFile as error:
        why = error.brief
    except ValueError:
        why = f"{path} is not what box notes at a start"
    name = vm.sandbox
    anew = f"; `box down {name} && box up {name}` notes it anew" if vm.kind == STANDING else ""
    return Unreadable(f"what was noted at its start is lost: {why}{anew}")


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
