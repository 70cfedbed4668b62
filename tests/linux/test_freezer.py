from __future__ import annotations

import dataclasses
import mmap
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.confinement import judging
from reconciler.confinement.policy import BindMount, Slot, policy_for
from reconciler.errors import Busy
from reconciler.linux import cgroups, freezer, procfs, reading
from tests.linux import container

pytestmark = pytest.mark.root

SLOT = Slot(0, 3_700_000_000, 3_700_000_000)
# Counts in all its threads, as long as it runs; with "fork", in children that come and go.
COUNTER = """
import mmap, os, sys, threading
with open(sys.argv[1], "r+b") as file:
    shared = mmap.mmap(file.fileno(), 8)
def count():
    while True:
        value = int.from_bytes(shared[:8], "little") + 1
        shared[:8] = value.to_bytes(8, "little")
        if sys.argv[2] == "fork":
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
for _ in range(0 if sys.argv[2] == "fork" else 2):
    threading.Thread(target=count).start()
count()
"""
DEADLINE_SECONDS = 60.0


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Counter:
    """A process that counts as long as it runs."""

    def __init__(self, directory: Path, how: str = "threads") -> None:
        path = directory / secrets.token_hex(4)
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 8)
        self.process = subprocess.Popen([sys.executable, "-I", "-c", COUNTER, str(path), how])
        self.runs_on()

    @property
    def count(self) -> int:
        return int.from_bytes(self._shared[:8], "little")

    def runs_on(self, steps: int = 50) -> None:
        """Wait until it has made some more steps."""
        start = self.count
        until(lambda: self.count >= start + steps)

    def enter(self, *directories: Path) -> None:
        for directory in directories:
            (directory / "cgroup.procs").write_text(str(self.process.pid))


@pytest.fixture
def counters(tmp_path: Path) -> Iterator[Callable[..., Counter]]:
    made: list[Counter] = []

    def make(how: str = "threads") -> Counter:
        made.append(Counter(tmp_path, how))
        return made[-1]

    yield make
    for each in made:
        each.process.kill()
        each.process.wait(10)


@pytest.fixture
def own() -> Iterator[dict[str, Path]]:
    """A cgroup of our own with the freezer of either version and one with none, where mounted."""
    path, layout = f"/box-test-{secrets.token_hex(4)}", cgroups.detect()
    found = {}
    for each in layout.hierarchies:
        names = {"freezer": "v1", "pids": "none"} if each.version == 1 else {"": "v2"}
        for controller, name in names.items():
            if each.version == 2 or controller in each.controllers:
                found[name] = each.directory(path)
    for directory in found.values():
        directory.mkdir()
    yield found
    cgroups.kill_all(found.values())
    cgroups.remove(found.values())


def need(own: dict[str, Path], names: tuple[str, ...]) -> list[Path]:
    if missing := set(names) - own.keys():
        pytest.skip(f"no such hierarchy here: {missing}")
    return [own[name] for name in names]


WAYS = [("v1",), ("v2",), ("none",), ("v1", "v2", "none"), ("v2", "none"), ("v1", "none")]


@pytest.mark.parametrize("names", WAYS, ids="-".join)
@pytest.mark.parametrize("how", ["threads", "fork"])
def test_what_is_frozen_takes_no_step_until_it_is_thawed(
    own: dict[str, Path], counters: Callable[..., Counter], names: tuple[str, ...], how: str
) -> None:
    directories = need(own, names)
    one, free = counters(how), counters()
    one.enter(*directories)
    assert not freezer.is_frozen(tuple(own.values()))
    for _ in range(2):
        freezer.freeze(tuple(own.values()))
        assert freezer.is_frozen(tuple(own.values()))
        before = one.count
        free.runs_on(2000)
        assert one.count == before
    for _ in range(2):
        freezer.thaw(tuple(own.values()))
        one.runs_on()
        assert not freezer.is_frozen(tuple(own.values()))


@pytest.mark.parametrize("names", [("v1",), ("v1", "v2", "none")], ids="-".join)
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_thread_that_left_version_1s_freezer_stands_with_all_others(
    own: dict[str, Path], counters: Callable[..., Counter], names: tuple[str, ...], *, before: bool
) -> None:
    """Version 1 has a cgroup for each thread, and freezes only those that are in it."""
    v1, *_ = directories = need(own, names)
    one = counters()
    one.enter(*directories)
    tasks = Path(f"/proc/{one.process.pid}/task")
    astray = max(int(each.name) for each in tasks.iterdir())
    if not before:
        freezer.freeze(directories)
    (v1.parent / "tasks").write_text(str(astray))
    # Version 2's, where there is one, has them all.
    assert freezer.is_frozen(directories) == ("v2" in names and not before)
    freezer.freeze(directories)
    assert freezer.is_frozen(directories)
    states = {(each / "stat").read_text().rpartition(") ")[2][0] for each in tasks.iterdir()}
    # Version 2's freezer shows its own as sleeping.
    assert states <= ({"S", "T"} if "v2" in names else {"T"})
    freezer.thaw(directories)
    one.runs_on()


def test_one_that_is_outside_of_the_freezer_is_stopped_too(
    own: dict[str, Path], counters: Callable[..., Counter]
) -> None:
    name = "v2" if "v2" in own else "v1"
    inside, outside = counters(), counters()
    inside.enter(*need(own, (name, "none")))
    outside.enter(own["none"])
    freezer.freeze(tuple(own.values()))
    before = inside.count, outside.count
    counters().runs_on(2000)
    assert (inside.count, outside.count) == before
    # One of the two goes on: not all stand still.
    outside.process.send_signal(signal.SIGCONT)
    outside.runs_on()
    assert not freezer.is_frozen(tuple(own.values()))
    freezer.thaw(tuple(own.values()))
    inside.runs_on()


@pytest.mark.parametrize("names", WAYS, ids="-".join)
def test_what_is_frozen_is_killed_without_another_step(
    own: dict[str, Path], counters: Callable[..., Counter], names: tuple[str, ...]
) -> None:
    directories = need(own, names)
    # So many that the last one would run before it is its turn, were they let go on first.
    many = [counters() for _ in range(5)]
    for one in many:
        one.enter(*directories)
    freezer.freeze(tuple(own.values()))
    before = [one.count for one in many]
    cgroups.kill_all(own.values(), timeout_seconds=DEADLINE_SECONDS)
    assert {one.process.wait(DEADLINE_SECONDS) for one in many} == {-signal.SIGKILL}
    assert [one.count for one in many] == before
    cgroups.remove(own.values())
    assert not any(each.exists() for each in own.values())


def test_a_frozen_cgroup_below_does_not_keep_its_processes_from_being_killed(
    own: dict[str, Path], counters: Callable[..., Counter]
) -> None:
    (directory,) = need(own, ("v1",))
    inner = directory / "inner"
    inner.mkdir()
    one = counters()
    one.enter(inner)
    freezer.freeze((inner,))
    cgroups.kill_all(own.values(), timeout_seconds=DEADLINE_SECONDS)
    assert one.process.wait(DEADLINE_SECONDS) == -signal.SIGKILL


def test_what_does_not_stand_still_in_time_is_told(
    own: dict[str, Path], counters: Callable[..., Counter]
) -> None:
    (none,) = need(own, ("none",))
    one = counters()
    one.enter(none)
    with pytest.raises(Busy, match="cannot be frozen") as caught:
        freezer.freeze(tuple(own.values()), timeout_seconds=0)
    assert str(none.name) in str(caught.value.details)
    # It is on its way all the same, and the next try sees it there.
    freezer.freeze(tuple(own.values()))


def test_cgroups_that_are_empty_or_gone_are_no_reason_to_wait(own: dict[str, Path]) -> None:
    freezer.freeze(tuple(own.values()))
    assert not freezer.is_frozen(tuple(own.values()))
    cgroups.remove(own.values())
    freezer.freeze(tuple(own.values()))
    freezer.thaw(tuple(own.values()))


@contextmanager
def probe() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="box-probe-", dir="/tmp"))
    yield container.build_probe(directory)
    shutil.rmtree(directory)


@pytest.mark.parametrize("without_freezer", [False, True])
def test_a_frozen_container_is_read_back_as_before_and_taken_away(*, without_freezer: bool) -> None:
    with probe() as program:
        wanted = policy_for(
            isolation="strict",
            ram_mib=128,
            cpus=1,
            own_uid=0,
            own_gid=0,
            slot=SLOT,
            cgroup=f"/box-test-{secrets.token_hex(4)}",
            binds=(BindMount(str(program), "/bin/vmm"),),
        )
        layout = cgroups.detect()
        if without_freezer:
            kept = tuple(e for e in layout.hierarchies if e.controllers & {"pids", "memory"})
            layout = dataclasses.replace(layout, hierarchies=kept)
        directories = layout.directories(wanted.cgroup)
        with container.running(wanted, ["/bin/vmm"]) as who:
            freezer.freeze(directories)
            assert freezer.is_frozen(directories)
            facts = judging.judge(wanted, reading.read_process(who, wanted))
            assert not [fact for fact in facts if fact.failed]
            status = Path(f"/proc/{who.pid}/status").read_bytes()
            assert procfs.parse_status(status).seccomp_mode == 2
        # The block's end killed it while it was frozen.
        assert not any(each.exists() for each in cgroups.detect().directories(wanted.cgroup))
