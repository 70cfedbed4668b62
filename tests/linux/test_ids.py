from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.confinement.policy import Slot
from reconciler.errors import Busy, Missing
from reconciler.linux import files, ids, subids
from reconciler.linux.ids import NoSlot
from reconciler.linux.subids import HostRange, SubordinateRanges

# Far from what any account or container of the host may have, and no other test file uses.
BASE = 3_850_000_000
ME = subids.user_name(os.getuid())


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    """ID tables that give us two slots."""
    directory = tmp_path / "etc"
    directory.mkdir()
    write_ranges(directory, f"{ME}:{BASE}:131072\n")
    return directory


def write_ranges(etc: Path, subuid: str, subgid: str | None = None) -> None:
    (etc / "subuid").write_text(subuid)
    (etc / "subgid").write_text(subuid if subgid is None else subgid)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    directory = tmp_path / "home"
    directory.mkdir()
    return directory


def test_slots_have_the_same_index_in_both_ranges() -> None:
    ranges = SubordinateRanges(
        uids=(HostRange(100_000, 65_535), HostRange(300_000, 131_072), HostRange(900_000, 70_000)),
        gids=(HostRange(500_000, 140_000),),
    )
    assert ids.slots(ranges) == (Slot(0, 300_000, 500_000), Slot(1, 365_536, 565_536))


def test_a_range_that_is_too_small_holds_none() -> None:
    small = (HostRange(1, 65_535),)
    assert ids.slots(SubordinateRanges(small, small)) == ()


def test_each_sandbox_keeps_its_own(home: Path, etc: Path) -> None:
    first = ids.allocate(home, "a", etc=etc)
    second = ids.allocate(home, "b", etc=etc)
    assert first == Slot(0, BASE, BASE)
    assert second == Slot(1, BASE + 65_536, BASE + 65_536)
    assert ids.allocate(home, "a", etc=etc) == first
    assert ids.held_slots(home) == {"a": first, "b": second}


def test_no_slot_left_says_how_to_add_one(home: Path, etc: Path) -> None:
    write_ranges(etc, f"{ME}:{BASE}:65536\nother:{BASE + 65_536}:65536\n")
    ids.allocate(home, "a", etc=etc)
    with pytest.raises(NoSlot) as caught:
        ids.allocate(home, "b", etc=etc)
    start = -(-(BASE + 131_072) // 65_536) * 65_536
    assert caught.value.hint == (
        f"usermod --add-subuids {start}-{start + 65_535}"
        f" --add-subgids {start}-{start + 65_535} {ME}"
    )
    # What it prints really adds one.
    write_ranges(etc, f"{ME}:{BASE}:65536\n{ME}:{start}:65536\n")
    assert ids.allocate(home, "b", etc=etc).uid_base == start


def test_slots_of_a_range_that_was_taken_back_are_not_counted_as_held(
    home: Path, etc: Path
) -> None:
    write_ranges(etc, f"{ME}:{BASE}:131072\n")
    ids.allocate(home, "a", etc=etc)
    ids.allocate(home, "b", etc=etc)
    write_ranges(etc, f"{ME}:{BASE}:65536\n")
    with pytest.raises(NoSlot) as caught:
        ids.allocate(home, "c", etc=etc)
    assert caught.value.details == f"slots of {ME}: 1, held by sandboxes: 1"


def test_a_user_given_by_number(home: Path, etc: Path) -> None:
    write_ranges(etc, f"{os.getuid()}:{BASE}:65536\n")
    assert ids.allocate(home, "a", etc=etc).uid_base == BASE


def test_a_freed_slot_is_given_again(home: Path, etc: Path) -> None:
    first = ids.allocate(home, "a", etc=etc)
    ids.release(home, "a")
    ids.release(home, "a")
    assert ids.allocate(home, "b", etc=etc) == first


@pytest.mark.parametrize("file", ["subuid", "subgid"])
def test_a_slot_that_overlaps_another_users_range_is_not_given(
    home: Path, etc: Path, file: str
) -> None:
    with (etc / file).open("a") as table:
        table.write(f"other:{BASE + 65_000}:100\n")
    assert ids.allocate(home, "a", etc=etc).index == 1
    with pytest.raises(NoSlot) as caught:
        ids.allocate(home, "b", etc=etc)
    assert "overlap a range of other" in (caught.value.details or "")


@pytest.mark.parametrize(("file", "kind"), [("passwd", "UID"), ("group", "GID")])
def test_a_slot_with_an_account_in_it_is_not_given(
    home: Path, etc: Path, file: str, kind: str
) -> None:
    (etc / file).write_text(f"someone:x:{BASE + 70_000}:1::/:/bin/sh\n")
    assert ids.allocate(home, "a", etc=etc).index == 0
    with pytest.raises(NoSlot) as caught:
        ids.allocate(home, "b", etc=etc)
    assert f"{kind} {BASE + 70_000} in" in (caught.value.details or "")


def test_a_slot_that_somebody_else_got_later_is_refused(home: Path, etc: Path) -> None:
    ids.allocate(home, "a", etc=etc)
    write_ranges(etc, f"{ME}:{BASE}:131072\nother:{BASE}:65536\n")
    with pytest.raises(NoSlot, match="overlap a range of other"):
        ids.allocate(home, "a", etc=etc)
    write_ranges(etc, f"{ME}:{BASE + 65_536}:65536\n")
    with pytest.raises(NoSlot, match="no longer a slot"):
        ids.allocate(home, "a", etc=etc)


@pytest.fixture
def running() -> Iterator[int]:
    """A process with a UID in the first slot; gives the UID."""
    uid = BASE + 5
    child = subprocess.Popen(["setpriv", "--reuid", str(uid), "--clear-groups", "sleep", "60"])
    while uid not in ids.uids_in_use():
        assert child.poll() is None
    yield uid
    child.kill()
    child.wait(10)


@pytest.mark.root
def test_a_zombie_has_no_use_for_its_uid() -> None:
    uid = BASE + 6
    argv = ["setpriv", "--reuid", str(uid), "--clear-groups", "true"]
    with subprocess.Popen(argv) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        status = Path(f"/proc/{child.pid}/status").read_text()
        assert f"\nUid:\t{uid}\t" in status
        assert uid not in ids.uids_in_use()


@pytest.mark.root
def test_a_slot_with_a_running_process_is_neither_given_nor_freed(
    home: Path, etc: Path, running: int
) -> None:
    assert ids.allocate(home, "a", etc=etc).index == 1
    ids.release(home, "a")
    held = {"index": 0, "uid_base": BASE, "gid_base": BASE}
    files.write_json(home / "slots.json", {"slots": {"z": held}})
    with pytest.raises(Busy) as caught:
        ids.release(home, "z")
    assert f"UID {running} " in (caught.value.details or "")
    assert ids.held_slots(home) == {"z": Slot(0, BASE, BASE)}


def test_a_fork_shares_its_parents_slot(home: Path, etc: Path) -> None:
    parent = ids.allocate(home, "a", etc=etc)
    assert ids.share(home, "fork", "a") == parent
    ids.release(home, "a")
    # The fork's files belong to the slot: nobody else may have it.
    assert ids.allocate(home, "b", etc=etc) != parent
    ids.release(home, "fork")
    assert ids.allocate(home, "c", etc=etc) == parent


def test_sharing_with_nobody_or_twice(home: Path, etc: Path) -> None:
    with pytest.raises(Missing):
        ids.share(home, "fork", "nobody")
    ids.allocate(home, "a", etc=etc)
    ids.allocate(home, "b", etc=etc)
    with pytest.raises(Busy):
        ids.share(home, "b", "a")


def test_two_that_ask_at_once_get_two(home: Path, etc: Path) -> None:
    write_ranges(etc, f"{ME}:{BASE}:{65_536 * 8}\n")
    got: list[Slot] = []
    threads = [
        threading.Thread(target=lambda n=n: got.append(ids.allocate(home, f"s{n}", etc=etc)))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({slot.uid_base for slot in got}) == 8


def test_two_processes_that_ask_at_once_get_two(home: Path, etc: Path) -> None:
    repo = str(Path(ids.__file__).parent.parent.parent)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path; from reconciler.linux import ids\n"
        "ids.allocate(Path(sys.argv[2]), sys.argv[4], etc=Path(sys.argv[3]))\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, repo, str(home), str(etc), name])
        for name in ("a", "b")
    ]
    assert [child.wait(60) for child in children] == [0, 0]
    assert len({slot.uid_base for slot in ids.held_slots(home).values()}) == 2


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"slots": []},
        {"slots": {"a": 1}},
        {"slots": {"a": {"index": 0, "uid_base": 1}}},
        {"slots": {"a": {"index": 0, "uid_base": "1", "gid_base": 1}}},
        {"slots": {"a": {"index": -1, "uid_base": 1, "gid_base": 1}}},
        {"slots": {"a": {"index": True, "uid_base": 1, "gid_base": 1}}},
    ],
)
def test_a_broken_record_gives_no_slot(home: Path, etc: Path, value: object) -> None:
    (home / "slots.json").write_text(json.dumps(value))
    with pytest.raises(files.BrokenFile):
        ids.allocate(home, "b", etc=etc)
