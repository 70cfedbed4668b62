"""The same checks as an ordinary user, under both isolations."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from reconciler.linux import cgroups, delegation, subids
from tests.linux.ordinary_user import OrdinaryUser, made

# A doctor starts containers, some seconds of it a test.
pytestmark = [pytest.mark.root, pytest.mark.slow]

REPORT = """
    from reconciler.engine.host.checks import check_host
    from reconciler.engine.home import open_home
    for each in check_host(open_home(), lambda text: None):
        print(each.id, each.tried_as, each.status, each.seen.found, "fix:", each.seen.fix)
        if each.bearing:
            print(each.id, "bears", each.bearing.effect, *each.bearing.promises)
"""


@pytest.fixture
def user() -> Iterator[OrdinaryUser]:
    with made() as it:
        yield it


def lines_of(text: str, check_id: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"{check_id} ")]


def test_both_isolations_are_tried_as_the_user(user: OrdinaryUser) -> None:
    said = user.run(REPORT)
    standard, *_ = lines_of(said, "container.standard")
    assert standard.startswith(f"container.standard {user.uid} ok "), said
    assert f"as UID {user.uid}:" in standard
    strict, *_ = lines_of(said, "container.strict")
    assert strict.startswith(f"container.strict {user.uid} ok "), said
    assert f"as UID {user.uid}:" not in strict
    for check_id in ("namespaces", "cgroups", "images", "slots"):
        assert lines_of(said, check_id)[0].startswith(f"{check_id} {user.uid} ok"), said
    assert "user and mount namespaces" in lines_of(said, "namespaces")[0]
    assert "slots for strict sandboxes: 1, held: 0, free: 1" in lines_of(said, "slots")[0]
    left = user.run(
        "import os; home = os.path.expanduser('~/.box');"
        "print(os.listdir(home + '/sandboxes'), os.listdir(home + '/runtime'))"
    )
    assert left == "[] []\n"


def test_what_this_user_cannot_read_is_said_by_the_promise(user: OrdinaryUser) -> None:
    first, bears = lines_of(user.run(REPORT), "reading.filter")
    assert first.startswith(f"reading.filter {user.uid} not_applicable without CAP_SYS_ADMIN")
    assert bears == "reading.filter bears unread seccomp.filter"


def test_without_a_cgroup_the_fix_is_roots_command(user: OrdinaryUser) -> None:
    cgroups.remove(cgroups.detect().directories(delegation.parent_of(user.uid)))
    said = user.run(REPORT)
    for check_id in ("cgroups", "container.strict", "container.standard"):
        first, *_ = lines_of(said, check_id)
        assert first.startswith(f"{check_id} {user.uid} failed")
        assert f"fix: sudo box setup --user {user.uid}" in first
    assert "limit.memory" in lines_of(said, "cgroups")[1]


def test_somebody_else_with_the_only_slot_is_an_exhausted_range(user: OrdinaryUser) -> None:
    user.run("""
        from reconciler.engine import slots
        from reconciler.engine.home import open_home, sandbox_directory
        sandbox_directory(open_home(), "web")
        slots.allocate(open_home(), "web")
    """)
    said = user.run(REPORT)
    (line, bears) = lines_of(said, "slots")
    assert "slots for strict sandboxes: 1, held: 1, free: 0 fix: sudo usermod --add-subuids" in line
    assert "apart.ids" in bears
    assert "not_applicable no slot" in lines_of(said, "container.strict")[0]
    assert f"container.standard {user.uid} ok" in said


@pytest.mark.vm
def test_a_guest_is_booted_under_both_isolations(user: OrdinaryUser) -> None:
    said = user.run("""
        import os
        from reconciler.engine.host.checks import check_host
        from reconciler.engine.home import open_home
        from reconciler.images.kernel import fetch_kernel
        home = open_home()
        fetch_kernel(home, lambda text: None)
        told = []
        made = {each.id: each for each in check_host(home, told.append)}
        for isolation in ("strict", "standard"):
            check = made[f"accelerator.{isolation}"]
            print(check.status, "tried 20" in check.seen.found, check.seen.fix is None)
        print([text for text in told if text.startswith("booting a guest")])
        told.clear()
        check_host(home, told.append)
        print([text for text in told if text.startswith("booting a guest")])
        print([os.listdir(home / name) for name in ("run", "runtime", "sandboxes")])
    """).splitlines()
    assert set(said[:2]) <= {"ok True True", "finding True False"}
    assert said[2:] == [
        "['booting a guest under strict', 'booting a guest under standard']",
        "[]",
        "[[], [], []]",
    ]


def test_without_subordinate_gids_it_is_they_that_are_missing_and_not_the_kernels_leave(
    user: OrdinaryUser,
) -> None:
    start = subids.ranges_of(subids.read_tables(), user.name, user.uid).gids[0].start
    taken = f"{start}-{start + 65535}"
    subprocess.run(["usermod", "--del-subgids", taken, user.name], check=True, timeout=60)
    said = user.run(REPORT)
    for check_id in ("namespaces", "container.standard"):
        first, *_ = lines_of(said, check_id)
        assert f"{check_id} {user.uid} failed {user.name} has no subordinate GIDs" in first
        assert first.endswith(f" {user.name}")
        assert "fix: sudo usermod --add-subuids" in first
