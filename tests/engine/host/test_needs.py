from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.engine.host import needs
from reconciler.engine.host.need import Account, Need, NeedKind, account_of, own_account
from reconciler.errors import Missing
from reconciler.linux import subids
from reconciler.linux.subids import HostRange

# No distribution gives this UID to anybody.
STRANGER = Account("box-stranger", 3_999_999, 3_999_999)


def of_kind(kind: NeedKind, found: tuple[Need, ...]) -> Need:
    (need,) = [each for each in found if each.kind is kind]
    return need


def test_somebody_without_ids_gets_slots_that_nobody_has() -> None:
    need = of_kind(NeedKind.SUBORDINATE_IDS, needs.host_needs(STRANGER, slots=1))
    ((program, _, uids, _, gids, name),) = need.fix
    assert (program, name, uids) == ("usermod", STRANGER.name, gids)
    first, last = map(int, uids.split("-"))
    given = HostRange(first, last - first + 1)
    assert given.size == needs.SLOTS_GIVEN << 16
    tables = subids.read_tables()
    assert not [line for line in tables.subuids + tables.subgids if line.range.overlaps(given)]
    assert not [uid for uid in tables.uids | tables.gids if first <= uid <= last]
    assert need.needs_root


def test_more_slots_than_usual_can_be_wanted() -> None:
    need = of_kind(NeedKind.SUBORDINATE_IDS, needs.host_needs(STRANGER, slots=40))
    first, last = map(int, need.fix[0][2].split("-"))
    assert last - first + 1 == 40 << 16


def test_slots_that_cannot_be_had_are_no_plan() -> None:
    with pytest.raises(Missing, match="none are left"):
        needs.host_needs(STRANGER, slots=1 << 16)


def test_nobody_needs_ids_who_has_no_strict_sandbox() -> None:
    kinds = {need.kind for need in needs.host_needs(STRANGER, slots=0)}
    assert NeedKind.SUBORDINATE_IDS not in kinds


def test_a_user_without_a_cgroup_is_told_who_makes_it() -> None:
    need = of_kind(NeedKind.CGROUPS, needs.host_needs(STRANGER, slots=0))
    assert need.fix == (("box", "setup", "--user", str(STRANGER.uid)),)
    assert need.needs_root


def test_root_makes_its_own_cgroup() -> None:
    kinds = {need.kind for need in needs.host_needs(Account("root", 0, 0), slots=0)}
    assert NeedKind.CGROUPS not in kinds


def test_an_empty_home_lacks_a_kernel(box_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOX_KERNEL", raising=False)
    us = own_account(os.getuid(), os.getgid())
    need = of_kind(NeedKind.KERNEL, needs.home_needs(us, box_home))
    assert not need.needs_root


def test_a_kernel_that_is_given_is_not_fetched(
    box_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOX_KERNEL", "/boot/mine")
    us = own_account(os.getuid(), os.getgid())
    assert NeedKind.KERNEL not in {need.kind for need in needs.home_needs(us, box_home)}
    assert needs.list_needs(box_home) == ()


def test_slots_that_overlap_somebody_elses_do_not_count(tmp_path: Path) -> None:
    for table in ("subuid", "subgid"):
        lines = f"{STRANGER.name}:1000000:196608\nother:1065536:10\n"
        (tmp_path / table).write_text(lines)
    assert needs.usable_slots(STRANGER, tmp_path) == 2


def test_accounts_go_by_name_and_by_number() -> None:
    assert account_of("root") == account_of("0") == Account("root", 0, 0)
    for nobody in ("no-such-user", "3999999", "9" * 40):
        with pytest.raises(Missing, match="no user"):
            account_of(nobody)
