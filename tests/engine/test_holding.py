"""Who holds /data, with processes that stand for VMMs and commands; with VMs in test_vm_run.py."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.engine import contact, holding, records
from reconciler.engine.holding import DataHeld
from reconciler.engine.records import VmRecord
from reconciler.errors import Frozen
from reconciler.linux.identity import ProcessIdentity
from tests.engine import specs
from tests.interrupts import interrupted

Sleeper = Callable[[], tuple[subprocess.Popen[bytes], ProcessIdentity]]
SINCE = "2026-01-02T03:04:05.678Z"


def held_by(home: Path, vm: VmRecord, **changes: object) -> VmRecord:
    record = replace(vm, started_at=SINCE, **changes)  # type: ignore[arg-type]
    records.keep_vm(home, record)
    return record


def holder(home: Path) -> VmRecord | None:
    return holding.holder_of(home, "web", "web.99999999")


def ignore(_held: DataHeld) -> None:
    return


def test_the_standing_vm_is_named_with_its_process_and_since_when(
    home: Path, sleeper: Sleeper
) -> None:
    _, who = sleeper()
    vm = held_by(home, specs.vm(home, identity=who))
    assert holder(home) == vm
    text = str(DataHeld("web", vm))
    for part in ("web is up", str(who.pid), SINCE, "box exec web", "--wait", "--no-data"):
        assert part in text


def test_a_command_is_named_by_its_own_process(home: Path, sleeper: Sleeper) -> None:
    _, who = sleeper()
    _, owner = sleeper()
    vm = held_by(home, specs.vm(home, "web.1234abcd", identity=who, owner=owner))
    assert holder(home) == vm
    text = str(DataHeld("web", vm))
    assert f"process {owner.pid}, since {SINCE}" in text
    assert "box exec" not in text


def test_who_has_no_data_is_gone_or_is_ourselves_holds_nothing(
    home: Path, sleeper: Sleeper
) -> None:
    child, who = sleeper()
    held_by(home, specs.vm(home, "web.1234abcd", identity=who, owner=who), with_data=False)
    assert holder(home) is None
    vm = held_by(home, specs.vm(home, "web.1234abcd", identity=who, owner=who))
    assert holding.holder_of(home, "web", vm.vm) is None
    assert holder(home) == vm
    child.kill()
    child.wait(10)
    assert holder(home) is None


def test_one_that_runs_comes_before_one_that_is_being_started(home: Path, sleeper: Sleeper) -> None:
    _, who = sleeper()
    starting = held_by(home, specs.vm(home, "web.00000000", owner=who))
    assert holder(home) == starting
    vm = held_by(home, specs.vm(home, "web.1234abcd", identity=who, owner=who))
    assert holder(home) == vm


def test_a_wait_sleeps_until_the_holder_ends_and_starts_at_once(
    home: Path, sleeper: Sleeper
) -> None:
    child, who = sleeper()
    vm = held_by(home, specs.vm(home, identity=who))
    tries: list[float] = []
    told: list[DataHeld] = []
    killed: list[float] = []

    def kill() -> None:
        killed.append(time.monotonic())
        child.kill()

    def start() -> VmRecord:
        tries.append(time.monotonic())
        if child.poll() is None:
            raise DataHeld("web", vm)
        return vm

    later = threading.Timer(1.5, kill)
    later.start()
    assert holding.when_free(home, "web", 60, start, told.append) == vm
    later.join()
    # Once at first, and again when it ended, not when the time to wait is over.
    assert len(tries) <= 3
    assert tries[-1] - killed[0] < 30
    assert [each.holder for each in told] == [vm]


def test_the_end_of_the_holders_command_wakes_too(home: Path, sleeper: Sleeper) -> None:
    _, who = sleeper()
    owner, owner_identity = sleeper()
    vm = held_by(home, specs.vm(home, "web.1234abcd", identity=who, owner=owner_identity))

    def start() -> VmRecord:
        if owner.poll() is None:
            raise DataHeld("web", vm)
        return vm

    later = threading.Timer(0.3, owner.kill)
    later.start()
    began = time.monotonic()
    assert holding.when_free(home, "web", 60, start, ignore) == vm
    later.join()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("known", [True, False])
def test_a_wait_ends_when_it_is_over(home: Path, sleeper: Sleeper, *, known: bool) -> None:
    _, who = sleeper()
    vm = held_by(home, specs.vm(home, identity=who)) if known else None

    def start() -> VmRecord:
        raise DataHeld("web", vm)

    began = time.monotonic()
    with pytest.raises(DataHeld, match=r"Waited 0\.4 s\. ") as caught:
        holding.when_free(home, "web", 0.4, start, ignore)
    assert 0.4 <= time.monotonic() - began < 30
    assert caught.value.exit_code == 125
    assert caught.value.hint is not None


def test_a_signal_ends_the_wait(home: Path, sleeper: Sleeper) -> None:
    _, who = sleeper()
    vm = held_by(home, specs.vm(home, identity=who))

    def start() -> VmRecord:
        raise DataHeld("web", vm)

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupted(0.3):
        holding.when_free(home, "web", 60, start, ignore)
    assert time.monotonic() - began < 30


def test_another_failure_is_not_waited_out(home: Path) -> None:
    def start() -> VmRecord:
        raise FileNotFoundError

    with pytest.raises(FileNotFoundError):
        holding.when_free(home, "web", 60, start, ignore)


def test_of_those_who_wait_one_starts_at_a_time(home: Path) -> None:
    vm = specs.vm(home)
    inside = threading.Semaphore(1)
    alone: list[bool] = []

    def start() -> VmRecord:
        got = inside.acquire(blocking=False)
        alone.append(got)
        time.sleep(0.05)
        if got:
            inside.release()
        return vm

    def wait() -> None:
        holding.when_free(home, "web", 60, start, ignore)

    waiters = [threading.Thread(target=wait) for _ in range(5)]
    for waiter in waiters:
        waiter.start()
    for waiter in waiters:
        waiter.join(30)
    assert alone == [True] * 5


def freeze_note(home: Path, vm: VmRecord) -> None:
    vm.directory(home).mkdir(exist_ok=True)
    (vm.directory(home) / contact.FROZEN).write_text('{"why": "seccomp: want on, have off"}')


def test_data_that_a_frozen_vm_has_is_waited_for_by_nobody(home: Path, sleeper: Sleeper) -> None:
    _, who = sleeper()
    vm = held_by(home, specs.vm(home, identity=who))
    assert isinstance(holding.data_held(home, "web"), DataHeld)
    freeze_note(home, vm)
    error = holding.data_held(home, "web")
    assert isinstance(error, Frozen)
    assert "box thaw web" in str(error)
    assert "seccomp: want on, have off" in str(error)


def test_who_waits_is_told_soon_after_the_holder_was_frozen(home: Path, sleeper: Sleeper) -> None:
    _, who = sleeper()
    vm = held_by(home, specs.vm(home, identity=who))

    def start() -> VmRecord:
        raise holding.data_held(home, "web")

    def waiting(_held: DataHeld) -> None:
        freeze_note(home, vm)

    began = time.monotonic()
    with pytest.raises(Frozen):
        holding.when_free(home, "web", 60, start, waiting)
    assert time.monotonic() - began < 30
