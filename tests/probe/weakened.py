"""Launch under one mutation and judge what was read by the policy that it should be held to."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from reconciler.backends import runtime
from reconciler.confinement import judging
from reconciler.confinement.facts import Fact, Verdict
from reconciler.confinement.policy import Isolation, Policy, Slot
from reconciler.confinement.reading import Reading
from reconciler.engine import rereading
from reconciler.linux import neighbours, reading
from tests.probe import standing, weaker
from tests.probe.afterwards import Around
from tests.probe.mutations import Mutation
from tests.probe.standing import Stand

Read = tuple[Policy, Reading]


def read_under(
    home: Path, program: Path, isolation: Isolation, slot: Slot | None, mutation: Mutation | None
) -> Read:
    """What is read of a launch that `mutation` weakens, or nothing, and what it should be held to.

    What a mutation does to the reading itself is left to `failing`.
    """
    with contextlib.ExitStack() as stack:
        stand = stack.enter_context(_standing(home, program, isolation, slot, mutation))
        around = Around(stand.who)
        if mutation and mutation.afterwards:
            around = stack.enter_context(mutation.afterwards(stand))
        others = neighbours.read_neighbours(around.others)
        return stand.policy, reading.read_process(around.who, stand.policy, neighbours=others)


def facts_of_a_start(
    home: Path, program: Path, slot: Slot, mutation: Mutation | None
) -> dict[str, Fact]:
    """What the engine finds before it claims a VM that was launched so, by promise."""
    with _standing(home, program, "strict", slot, mutation) as stand:
        directory, name = stand.launch.directory, stand.launch.name
        facts = rereading.judge_start(home, directory, name, stand.who, stand.policy)
        return {fact.promise: fact for fact in facts}


@contextlib.contextmanager
def _standing(
    home: Path, program: Path, isolation: Isolation, slot: Slot | None, mutation: Mutation | None
) -> Iterator[Stand]:
    chosen = runtime.find_runtime()
    with contextlib.ExitStack() as stack:
        if mutation and mutation.spec:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=home)))
            chosen = weaker.runtime_with(chosen, mutation.spec.__name__, folder)
        launch = standing.launch_of(home, program, isolation, slot, chosen)
        yield stack.enter_context(standing.standing(launch))


def failing(read: Read, mutation: Mutation | None = None) -> set[str]:
    """The promises that do not hold, when `mutation` has changed the reading too."""
    policy, found = read
    if mutation and mutation.read:
        found = mutation.read(found)
    return {each.promise for each in judging.judge(policy, found) if each.failed}


def not_applicable(read: Read, mutation: Mutation) -> str | None:
    """Why a host like this one does not show whether the promise holds; None when it does."""
    facts = {fact.promise: fact for fact in judging.judge(*read)}
    fact = facts[mutation.promise]
    return fact.have if fact.verdict is Verdict.NOT_APPLICABLE else None
