"""The verifier verified: a launch that is weaker by one thing is named for it, and for no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.confinement.facts import Verdict
from reconciler.confinement.policy import Slot
from reconciler.confinement.promises import PROMISES
from tests.linux.ordinary_user import OrdinaryUser
from tests.probe import weakened
from tests.probe.mutations import MUTATIONS, Mutation
from tests.probe.weakened import Read

WEAKER_FILTERS = [each for each in MUTATIONS if each.promise == "seccomp.filter"]
SLOT = Slot(0, 1_950_000_000, 1_950_000_000)


@pytest.fixture(scope="module")
def home(folder: Path) -> Path:
    path = folder / "home"
    path.mkdir(mode=0o700)
    return path


def judged(mutation: Mutation, failed: set[str]) -> None:
    """It is named, and nothing is that does not follow from it."""
    assert mutation.promise in failed
    assert failed <= {mutation.promise, *mutation.also}


@pytest.fixture(scope="module")
def plain(home: Path, probe: Path) -> Read:
    """A launch that nothing weakens."""
    return weakened.read_under(home, probe, "strict", SLOT, None)


@pytest.mark.root
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.name)
def test_what_is_weaker_by_one_thing_is_named_for_it_alone(
    home: Path, probe: Path, plain: Read, mutation: Mutation
) -> None:
    if not mutation.read and (why := weakened.not_applicable(plain, mutation)):
        pytest.skip(f"{mutation.promise}: {why}")
    launched = mutation.spec or mutation.afterwards
    read = weakened.read_under(home, probe, "strict", SLOT, mutation) if launched else plain
    judged(mutation, weakened.failing(read, mutation))


@pytest.mark.root
@pytest.mark.parametrize("weaker", WEAKER_FILTERS, ids=lambda each: each.name)
def test_a_start_under_a_weaker_filter_is_named_for_it_alone(
    home: Path, probe: Path, weaker: Mutation
) -> None:
    """By the engine's own reading of a start, which a VM like that gets no further than."""
    facts = weakened.facts_of_a_start(home, probe, SLOT, weaker)
    assert {name for name, fact in facts.items() if fact.failed} == {"seccomp.filter"}


@pytest.mark.root
def test_a_start_under_our_filter_tells_its_hash(home: Path, probe: Path) -> None:
    facts = weakened.facts_of_a_start(home, probe, SLOT, None)
    assert not [fact for fact in facts.values() if fact.failed]
    assert facts["seccomp.filter"].verdict is Verdict.SAME
    assert "as at its start: sha256 " in facts["seccomp.filter"].have


@pytest.mark.root
def test_without_a_weakness_nothing_is_named(plain: Read) -> None:
    assert weakened.failing(plain) == set()


SCRIPT = """
    import json, os
    from pathlib import Path
    from reconciler.linux import ids, subids
    from tests.probe import weakened
    from tests.probe.mutations import MUTATIONS
    uid, home = os.getuid(), Path.home()
    ranges = subids.ranges_of(subids.read_tables(), subids.user_name(uid), uid)
    slot = ids.slots(ranges)[0] if {isolation!r} == "strict" else None
    own = home / {isolation!r}
    own.mkdir(mode=0o700)
    found, seen = {{}}, set()
    for each in MUTATIONS:
        # One launch a promise: the rest is the same for all users.
        if each.spec and each.by_users and not each.afterwards and each.promise not in seen:
            seen.add(each.promise)
            read = weakened.read_under(own, home / "probe", {isolation!r}, slot, each)
            found[each.name] = sorted(weakened.failing(read, each))
    print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.parametrize("isolation", ["strict", "standard"])
def test_an_ordinary_users_weaker_launches_are_named_too(
    user: OrdinaryUser, isolation: str
) -> None:
    found = json.loads(user.run(SCRIPT.format(isolation=isolation)))
    known = {each.name: each for each in MUTATIONS}
    assert len(found) > 12
    for name, failed in found.items():
        judged(known[name], set(failed))


def test_every_promise_is_broken_by_something() -> None:
    assert {each.promise for each in MUTATIONS} == {each.id for each in PROMISES}


def test_every_promise_is_broken_by_something_that_breaks_no_other() -> None:
    alone = {each.promise for each in MUTATIONS if not each.also}
    assert alone == {each.id for each in PROMISES}


def test_what_breaks_more_than_one_promise_or_no_launch_says_why() -> None:
    unsaid = [each.name for each in MUTATIONS if each.also and not each.why]
    assert unsaid == []
    assert len({each.name for each in MUTATIONS}) == len(MUTATIONS)
