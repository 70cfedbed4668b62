from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engine.host import needs
from reconciler.engine.host.need import Account, NeedKind
from reconciler.engine.host.setup import set_up_host
from reconciler.linux import cgroups, delegation, subids
from tests.linux.ordinary_user import OrdinaryUser, made

pytestmark = pytest.mark.root


@pytest.fixture
def user() -> Iterator[OrdinaryUser]:
    """A user as useradd makes one: one slot of subordinate IDs, no cgroup."""
    with made() as it:
        cgroups.remove(cgroups.detect().directories(delegation.parent_of(it.uid)))
        yield it


def test_a_user_gets_what_takes_root_and_twice_is_once(user: OrdinaryUser) -> None:
    account = Account(user.name, user.uid, user.gid)
    said: list[str] = []
    met = set_up_host(account, slots=3, progress=said.append)
    assert {NeedKind.SUBORDINATE_IDS, NeedKind.CGROUPS} <= {need.kind for need in met}
    assert len(said) == len(met)

    script = """
        import os
        from reconciler.engine.host import needs
        from reconciler.engine.host.need import own_account
        from reconciler.engine.host.namespaces import check_namespaces
        account = own_account(os.getuid(), os.getgid())
        print(needs.host_needs(account, slots=3), needs.usable_slots(account))
        print(check_namespaces())
    """
    assert user.run(script) == f"() {needs.SLOTS_GIVEN}\nuser and mount namespaces\n"

    before = Path("/etc/subuid").read_bytes()
    assert set_up_host(account, slots=3, progress=said.append) == ()
    assert Path("/etc/subuid").read_bytes() == before


def test_two_users_get_different_ids(user: OrdinaryUser) -> None:
    set_up_host(Account(user.name, user.uid, user.gid), slots=2, progress=lambda _: None)
    tables = subids.read_tables()
    own = subids.ranges_of(tables, user.name, user.uid)
    others = [line.range for line in tables.subuids if line.owner != user.name]
    assert not [each for each in own.uids if any(each.overlaps(other) for other in others)]


def test_nobody_but_root_sets_up_a_host(user: OrdinaryUser) -> None:
    script = """
        import os
        from reconciler.engine.host.need import own_account
        from reconciler.engine.host.setup import set_up_host
        from reconciler.errors import Refused
        try:
            set_up_host(own_account(os.getuid(), os.getgid()), slots=1, progress=print)
        except Refused as error:
            print(error.hint)
    """
    assert user.run(script) == "run it with sudo\n"
