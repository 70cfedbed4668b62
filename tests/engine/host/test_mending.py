"""What --fix brings, and what it leaves alone."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engine.host import mending, needs
from reconciler.engine.host.check import Check, Group, Seen, failed, finding, ok
from reconciler.engine.host.need import Account, NeedKind
from reconciler.linux import cgroups, delegation, subids
from tests.linux.ordinary_user import OrdinaryUser, made

STRANGER = Account("box-stranger", 3_999_999, 3_999_999)
BAD = failed("bad", "mend it")


def check(check_id: str, seen: Seen = BAD) -> Check:
    return Check(check_id, Group.NEEDED, seen, 0, None)


def test_only_what_gives_to_the_user_is_mended() -> None:
    everything = tuple(check(each) for each in ("runtime", "qemu", "kernel", "disk", "images"))
    assert mending.mendable(everything, STRANGER) == ()
    both = mending.mendable((check("slots"), check("cgroups")), STRANGER)
    assert {each.kind for each in both} == {NeedKind.SUBORDINATE_IDS, NeedKind.CGROUPS}
    assert all(each.needs_root for each in both)
    assert not [need for need in both if need.packages]
    (only,) = mending.mendable((check("slots"),), STRANGER)
    assert only.kind is NeedKind.SUBORDINATE_IDS


def test_what_is_well_or_a_finding_is_left_alone() -> None:
    checks = (check("slots", ok("16 free")), check("cgroups", finding("odd", "look")))
    assert mending.mendable(checks, STRANGER) == ()
    assert mending.mend(checks, STRANGER, print) == ()


@pytest.fixture
def user() -> Iterator[OrdinaryUser]:
    with made() as it:
        cgroups.remove(cgroups.detect().directories(delegation.parent_of(it.uid)))
        yield it


@pytest.mark.root
def test_root_mends_and_twice_is_once(user: OrdinaryUser) -> None:
    account = Account(user.name, user.uid, user.gid)
    lines = [each for each in Path("/etc/subuid").read_text().splitlines() if user.name in each]
    said: list[str] = []
    # As many as root itself holds count: at least one more than the user has.
    checks = (check("cgroups"),)
    met = mending.mend(checks, account, said.append)
    assert [each.kind for each in met] == [NeedKind.CGROUPS]
    assert len(said) == 1
    assert mending.mendable(checks, account) == ()
    assert mending.mend(checks, account, said.append) == ()
    assert len(said) == 1
    # Nothing was given that was not asked for.
    after = [each for each in Path("/etc/subuid").read_text().splitlines() if user.name in each]
    assert after == lines


@pytest.mark.root
def test_ids_are_given_where_there_are_none_and_nothing_else_is(user: OrdinaryUser) -> None:
    account = Account(user.name, user.uid, user.gid)
    own = subids.ranges_of(subids.read_tables(), user.name, user.uid)
    for option, given in (("--del-subuids", own.uids), ("--del-subgids", own.gids)):
        for each in given:
            ids = f"{each.start}-{each.end - 1}"
            subprocess.run(["usermod", option, ids, user.name], check=True, timeout=60)
    (met,) = mending.mend((check("slots"),), account, lambda text: None)
    assert met.kind is NeedKind.SUBORDINATE_IDS
    assert needs.usable_slots(account) >= 1
    parents = cgroups.detect().directories(delegation.parent_of(user.uid))
    assert not [path for path in parents if path.exists()]


@pytest.mark.root
def test_an_ordinary_user_is_told_and_nothing_is_done(user: OrdinaryUser) -> None:
    before = Path("/etc/subuid").read_bytes()
    script = """
        import os
        from reconciler.engine.host import mending
        from reconciler.engine.host.checks import check_host
        from reconciler.engine.host.need import own_account
        from reconciler.engine.home import open_home
        checks = check_host(open_home(), lambda text: None)
        account = own_account(os.getuid(), os.getgid())
        for need in mending.mendable(checks, account):
            print(need.kind, need.fix[0][0], need.needs_root)
        print(mending.mend(checks, account, print))
    """
    assert user.run(script) == "cgroups box True\n()\n"
    table = subids.parse_subids(before, "subuid")
    own = [line for line in subids.read_tables().subuids if line.owner == user.name]
    assert own == [line for line in table if line.owner == user.name]
    assert needs.usable_slots(Account(user.name, user.uid, user.gid)) == 1
