"""A program in the VMM's exact place: what it sees, what is seen of it, and what it cannot do.

Every attempt is shown to work unconfined first, so that "denied" cannot mean a broken attempt.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest

from reconciler.backends import runtime
from reconciler.confinement.policy import Slot
from reconciler.confinement.promises import PROMISES
from tests.linux.ordinary_user import OrdinaryUser
from tests.probe import agreement, standing, targets, trial, unconfined, weaker
from tests.probe.trial import Trial
from tests.probe.unconfined import Proof

pytestmark = pytest.mark.root

SLOT = Slot(0, 1_900_000_000, 1_900_000_000)
PLACES = ("root strict", "user strict", "user standard")
PROVEN = 140
# What no missing capability and no namespace refuses; the first of them is the way to the rest.
THE_FILTERS = [
    *("socket.unix", "socket.tcp", "socket.netlink", "socket.vsock", "process.fork"),
    *("clone3.user", "key.add", "kernel.io_uring", "kernel.personality", "kernel.subreaper"),
    *("kernel.ldt", "door.i386", "unshare.user", "unshare.mnt", "mount.tmpfs"),
]
# What need not be there, or cannot be seen by everybody.
NOT_EVERYWHERE = {"label", "seccomp.filter", "apart.ids", "apart.namespaces", "limit.devices"}


@pytest.fixture(scope="module")
def ids(probe: Path) -> list[str]:
    return [each["id"] for each in unconfined.list_attempts(probe)]


@pytest.fixture(scope="module")
def proofs(folder: Path, probe: Path, ids: list[str]) -> dict[str, Proof]:
    """Each attempt, made unconfined."""
    wanted = standing.launch_of(_home(folder), probe, "strict", SLOT).policy()
    found = {}
    with targets.made(folder) as aims, unconfined.wide_cgroup() as cgroup:
        for each in ids:
            scratch = folder / secrets.token_hex(8)
            scratch.mkdir()
            words = {**aims.words, **standing.sizes(wanted)}
            found[each] = unconfined.prove(probe, each, words, scratch, cgroup)
    return found


def _home(folder: Path) -> Path:
    home = folder / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    return home


SCRIPT = """
    import dataclasses, json, os
    from pathlib import Path
    from reconciler.linux import ids, subids
    from tests.probe import trial
    uid, home = os.getuid(), Path.home()
    ranges = subids.ranges_of(subids.read_tables(), subids.user_name(uid), uid)
    slot = ids.slots(ranges)[0] if {isolation!r} == "strict" else None
    own = home / {isolation!r}
    for folder in (own, own / "box", own / "aims"):
        folder.mkdir(mode=0o700)
    found = trial.run(own / "box", own / "aims", home / "probe", {isolation!r}, slot, {ids!r})
    print(json.dumps(dataclasses.asdict(found)))
"""


@pytest.fixture(scope="module", params=PLACES)
def tried(request: pytest.FixtureRequest, folder: Path, probe: Path, ids: list[str]) -> Trial:
    """A whole trial in one place."""
    who, isolation = request.param.split()
    if who == "root":
        aims = folder / "aims"
        aims.mkdir()
        return trial.run(_home(folder), aims, probe, isolation, SLOT, ids)
    user = request.getfixturevalue("user")
    assert isinstance(user, OrdinaryUser)
    return Trial(**json.loads(user.run(SCRIPT.format(isolation=isolation, ids=ids))))


def test_every_attempt_works_unconfined(proofs: dict[str, Proof]) -> None:
    broken = [p.attempt for p in proofs.values() if p.attempt.outcome != "worked" and not p.absent]
    assert broken == []


def test_what_this_host_has_nothing_to_try_on_is_named(proofs: dict[str, Proof]) -> None:
    """Counted, so that a host on which little can be tried does not pass for a safe one."""
    absent = sorted(each for each, proof in proofs.items() if proof.absent)
    assert len(proofs) - len(absent) >= PROVEN
    if absent:
        pytest.skip(f"{len(absent)} of {len(proofs)} attempts: not on this host: {absent}")


def test_nothing_forbidden_works_in_the_vmms_place(tried: Trial, ids: list[str]) -> None:
    assert [each[0] for each in tried.attempts] == ids
    assert [each for each in tried.attempts if each[1] == "worked"] == []


def test_other_doors_into_the_kernel_kill(tried: Trial) -> None:
    doors = {each[0]: each[1] for each in tried.attempts if each[0].startswith("door.")}
    assert set(doors.values()) == {"killed"}


def test_its_threads_end_at_the_limit_and_its_memory_ends_it(tried: Trial) -> None:
    values = {each[0]: each for each in tried.attempts}
    # The value of what failed is one less than the negative number of those it had, itself aside.
    assert values["limit.threads"][3] == -tried.pids_limit
    assert values["limit.memory"][1] == "killed"
    assert tried.ended


def test_inside_outside_and_policy_agree(tried: Trial) -> None:
    verdicts = {each: verdict for each, verdict in tried.facts.items() if verdict != "same"}
    assert set(verdicts) <= NOT_EVERYWHERE
    assert set(verdicts.values()) <= {"not_applicable"}
    assert tried.disagreements == []


def test_it_is_still_confined_when_it_has_tried_everything(tried: Trial) -> None:
    assert tried.later == []


def test_it_was_started_with_qemus_arguments_and_without_an_environment(tried: Trial) -> None:
    assert "-nodefaults" in tried.argv
    assert tried.environment == []


def test_what_the_filter_is_for(folder: Path, probe: Path, ids: list[str]) -> None:
    """The same attempts in the same place without it: other promises do not refuse these."""
    home = _home(folder)
    chosen = weaker.runtime_with(runtime.find_runtime(), "no_filter", folder)
    launch = standing.launch_of(home, probe, "strict", SLOT, chosen)
    with targets.made(folder) as aims, standing.standing(launch) as stand:
        standing.give_disk(stand, aims.words)
        found = stand.talk.attempts([each for each in THE_FILTERS if each in ids])
    assert {each.id for each in found if each.outcome != "worked"} == set()


def test_every_promise_is_seen_or_tried_from_inside(ids: list[str]) -> None:
    promises = {each.id for each in PROMISES}
    assert promises - set(agreement.COMPARED) - set(agreement.TRIED) == set()
    assert set(agreement.COMPARED) | set(agreement.TRIED) <= promises
    assert set(agreement.TRIED.values()) <= set(ids)
