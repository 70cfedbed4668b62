"""Room on the file system of /data, with processes for VMMs; guests are in test_vm_space.py."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.engine import contact, freezing, journal, records, space
from reconciler.engine.home import disk_of, sandbox_directory
from reconciler.engine.records import VmRecord
from reconciler.engine.space import NoSpace, Watch
from reconciler.errors import Frozen
from reconciler.linux import freezer, identity
from reconciler.linux.identity import ProcessIdentity
from reconciler.surfaces.cli import app
from tests.engine import specs
from tests.engine.test_freezing import WRONG
from tests.live import until

pytestmark = pytest.mark.root

MIB = 1 << 20
SIZE = 64 * MIB


@pytest.fixture
def small(home: Path) -> Iterator[Path]:
    """A home whose disks have 64 MiB of room, of which guests get all but 6."""
    folder = home / "sandboxes"
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "box-test", str(folder)]
    subprocess.run(mount, check=True)
    yield home
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def vm(small: Path, jailed: Callable[[str], ProcessIdentity]) -> VmRecord:
    return started(small, "web", jailed)


def started(home: Path, name: str, jailed: Callable[[str], ProcessIdentity]) -> VmRecord:
    who = jailed(name)
    sandbox_directory(home, records.sandbox_of(name))
    record = specs.vm(home, name, identity=who)
    records.keep_vm(home, record)
    grow(home, 1, record.sandbox)
    return record


def grow(home: Path, mib: int, name: str = "web") -> None:
    with disk_of(home, name).open("ab") as disk:
        disk.write(bytes(mib * MIB))


def fill(home: Path, free_mib: int) -> Path:
    """Leave so much room with a file that is no guest's."""
    found = os.statvfs(home / "sandboxes")
    other = home / "sandboxes" / "filler"
    other.write_bytes(bytes(found.f_bavail * found.f_frsize - free_mib * MIB))
    return other


def watch(home: Path, told: list[str] | None = None, *, only: str = "") -> Watch:
    heard = told if told is not None else []
    return Watch(home, lambda name, text: heard.append(f"{name} {text}"), only=only)


def stands(vm: VmRecord) -> bool:
    return freezer.is_frozen(freezing.directories(vm))


def reasons(home: Path) -> list[str]:
    return [event["reason"] for event in journal.read_events(home)]


@pytest.mark.parametrize(
    ("total", "kept"), [(0, 0), (SIZE, SIZE // 10), (10 << 30, 1 << 30), (1 << 50, 1 << 30)]
)
def test_a_tenth_is_kept_from_guests_and_at_most_a_gibibyte(total: int, kept: int) -> None:
    assert space.mark(total) == kept


def test_who_grows_in_the_last_part_stands_still_until_there_is_room(
    small: Path, vm: VmRecord
) -> None:
    told: list[str] = []
    looking = watch(small, told)
    other = fill(small, 20)
    looking.look()
    grow(small, 10)
    looking.look()
    assert not stands(vm)
    grow(small, 5)
    looking.look()
    # How much it grows by is known from here on.
    assert not stands(vm)
    looking.look()
    assert not stands(vm)
    grow(small, 1)
    looking.look()
    assert stands(vm)
    noted = freezing.frozen(small, vm)
    assert noted is not None
    assert (noted.reason, noted.stands) == (contact.NO_SPACE, True)
    assert "grew by 1048576 bytes with 4 MiB free" in noted.why
    with pytest.raises(Frozen, match="web is paused: the host's file system") as caught:
        contact.running(small, "web")
    assert "box thaw web" in str(caught.value)
    assert reasons(small) == ["Paused"]
    # Above the mark, but so little that it would be there again at once.
    other.write_bytes(bytes(other.stat().st_size - 3 * MIB))
    looking.look()
    assert stands(vm)
    other.unlink()
    looking.look()
    assert not stands(vm)
    assert freezing.frozen(small, vm) is None
    assert reasons(small) == ["Paused", "Resumed"]
    assert [line.split(":")[0] for line in told] == [
        "web paused until there is room",
        "web goes on",
    ]


def test_who_does_not_grow_goes_on(
    small: Path, vm: VmRecord, jailed: Callable[[str], ProcessIdentity]
) -> None:
    other = started(small, "other", jailed)
    looking = watch(small)
    fill(small, 3)
    looking.look()
    grow(small, 1, "other")
    # Written again, it takes no more room.
    with disk_of(small, "web").open("r+b") as disk:
        disk.write(bytes(MIB))
    looking.look()
    assert (stands(vm), stands(other)) == (False, True)


def test_where_nearly_nothing_is_left_all_stand_still_before_their_writes_fail(
    small: Path, vm: VmRecord, jailed: Callable[[str], ProcessIdentity]
) -> None:
    other = started(small, "other", jailed)
    told: list[str] = []
    looking = watch(small, told)
    looking.look()
    filler = fill(small, 0)
    looking.look()
    assert (stands(vm), stands(other)) == (True, True)
    assert all("paused until there is room: its /data cannot grow with 0" in each for each in told)
    filler.unlink()
    looking.look()
    assert (stands(vm), stands(other)) == (False, False)


def test_one_that_cannot_be_noted_keeps_no_other_from_standing_still(
    small: Path, vm: VmRecord, jailed: Callable[[str], ProcessIdentity]
) -> None:
    other = started(small, "other", jailed)
    # As on a full disk, for whoever is root too.
    (vm.directory(small) / "freezing.lock").mkdir()
    fill(small, 0)
    watch(small).look()
    assert (stands(vm), stands(other)) == (False, True)


def test_one_that_something_let_go_on_is_stopped_again_when_it_grows(
    small: Path, vm: VmRecord
) -> None:
    looking = watch(small)
    fill(small, 4)
    looking.look()
    grow(small, 1)
    looking.look()
    freezer.thaw(freezing.directories(vm))
    looking.look()
    assert not stands(vm)
    grow(small, 1)
    looking.look()
    assert stands(vm)
    assert reasons(small) == ["Paused"]


def test_another_watch_finds_it_and_lets_it_go_on(small: Path, vm: VmRecord) -> None:
    assert freezing.pause(small, vm, "no room")
    assert not freezing.pause(small, vm, "again")
    watch(small, only="web.12345678").look()
    assert stands(vm)
    watch(small, only="web").look()
    assert not stands(vm)


def test_a_run_looks_after_its_own_vm_alone(
    small: Path, vm: VmRecord, jailed: Callable[[str], ProcessIdentity]
) -> None:
    other = started(small, "other", jailed)
    looking = watch(small, only="other")
    fill(small, 4)
    looking.look()
    grow(small, 1)
    grow(small, 1, "other")
    looking.look()
    assert (stands(vm), stands(other)) == (False, True)


def test_room_is_no_answer_to_what_differs(small: Path, vm: VmRecord) -> None:
    freezing.pause(small, vm, "no room")
    freezing.freeze(small, vm, WRONG)
    watch(small).look()
    noted = freezing.frozen(small, vm)
    assert noted is not None
    assert (noted.reason, noted.why) == (contact.DIFFERED, "seccomp: want on, have off")
    assert stands(vm)
    # Nor is the want of it a reason to forget that.
    assert not freezing.pause(small, vm, "no room")
    assert freezing.frozen(small, vm) == noted
    assert not freezing.resume(small, vm)
    assert stands(vm)


def test_a_pass_lets_it_go_on_when_there_is_room(small: Path, vm: VmRecord) -> None:
    assert not space.let_go_on(small, "web")
    freezing.pause(small, vm, "no room")
    other = fill(small, 8)
    assert not space.let_go_on(small, "web")
    assert stands(vm)
    other.unlink()
    assert space.let_go_on(small, "web")
    assert not stands(vm)
    assert reasons(small) == ["Resumed"]
    freezing.freeze(small, vm, WRONG)
    assert not space.let_go_on(small, "web")
    assert stands(vm)


@pytest.mark.parametrize("short", [True, False])
def test_a_person_lets_it_go_on_too(
    small: Path,
    vm: VmRecord,
    capsys: pytest.CaptureFixture[str],
    short: bool,  # noqa: FBT001
) -> None:
    freezing.pause(small, vm, "no room")
    if short:
        fill(small, 5)
    assert app.main(["thaw", "web"]) == 0
    assert not stands(vm)
    assert ("pauses it again" in capsys.readouterr().err) is short
    assert not freezing.resume(small, vm)
    assert reasons(small) == ["Thawed"]


def test_one_that_ended_meanwhile_leaves_no_note_and_nothing_frozen(
    small: Path, vm: VmRecord
) -> None:
    assert vm.identity is not None
    with identity.open_process(vm.identity) as process:
        assert process is not None
        process.signal(9)
        process.wait(10)
    assert not freezing.pause(small, vm, "no room")
    assert not contact.is_frozen(vm.directory(small))


def test_nothing_that_would_write_is_started_in_the_last_part(small: Path) -> None:
    space.check(small)
    fill(small, 5)
    with pytest.raises(NoSpace, match="nearly full: 5 MiB are free, and the last 6 are kept"):
        space.check(small)


def test_the_next_look_comes_before_the_fastest_could_have_used_up_half_of_what_is_left(
    small: Path, home: Path
) -> None:
    for free_mib in (None, 20, 1):
        if free_mib is not None:
            fill(small, free_mib)
        assert watch(small).look() == 0.02
    subprocess.run(["umount", small / "sandboxes"], check=True)
    found = os.statvfs(home / "sandboxes")
    seconds = watch(home).look()
    assert seconds <= 2
    assert seconds * (4 << 30) <= found.f_bavail * found.f_frsize
    subprocess.run(["mount", "-t", "tmpfs", "box-test", home / "sandboxes"], check=True)


def test_a_thread_looks_until_the_end_of_the_block(small: Path, vm: VmRecord) -> None:
    other = fill(small, 20)
    with space.watched(small, lambda *_: None):
        while not stands(vm):
            grow(small, 1)
            # What it writes takes time, as that of a guest does.
            time.sleep(0.1)
        found = os.statvfs(small / "sandboxes")
        assert found.f_bavail > 0
        other.unlink()
        until(lambda: not stands(vm))
    assert "box-space" not in [each.name for each in threading.enumerate()]
