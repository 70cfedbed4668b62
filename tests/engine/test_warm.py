"""Waiting VMs without VMs: what is planned, what may be taken, how trouble is kept."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.controller import conditions
from reconciler.engine import admission, contact, journal, observe, records, slots, warm, warming
from reconciler.engine.observe import Observation, Waiting
from reconciler.engine.plan import plan
from reconciler.engine.records import WARM, SandboxRecord, VmRecord
from reconciler.engine.spec import Spec
from reconciler.engine.warming import Trouble
from reconciler.linux import files
from reconciler.linux.identity import ProcessIdentity
from tests.engine import specs
from tests.live import root_has_ids, until

Sleeper = Callable[[], tuple[subprocess.Popen[bytes], ProcessIdentity]]
HOME = Path("/home")
BUILT = specs.spec(state="built", warm=2)


def waiting(number: int, of: Spec = BUILT, fault: str = "", **changes: Any) -> Waiting:  # noqa: ANN401
    vm = specs.vm(HOME, f"web.{number:08x}", of=of)
    return Waiting(replace(vm, kind=WARM, ready=True, **changes), fault)


def seen(spec: Spec, *pool: Waiting, **changes: Any) -> Observation:  # noqa: ANN401
    record = replace(specs.RECORD, spec=spec)
    known = Observation("web", record, None, running=False, built=True, waiting=pool)
    return replace(known, **changes)


def planned(spec: Spec | None, look: Observation) -> list[tuple[str, str]]:
    return [(action.kind.value, action.vm.partition(".")[2]) for action in plan(spec, look)]


A, B, C = waiting(1), waiting(2), waiting(3)
OTHER = waiting(4, specs.spec(state="built", warm=2, env=(("EDITOR", "ed"),)))


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        ((), [("warm", "")]),
        ((A,), [("warm", "")]),
        ((A, B), []),
        ((A, B, C), [("drain", "00000003")]),
        ((A, OTHER), [("drain", "00000004"), ("warm", "")]),
        ((A, replace(B, fault="changed")), [("drain", "00000002"), ("warm", "")]),
        # Being got ready: it counts.
        ((A, replace(B, vm=replace(B.vm, ready=False))), []),
        # Made when the sandbox was up, or had another number of them: still the same VM.
        ((waiting(1, specs.spec(state="running", warm=8)), B), []),
    ],
)
def test_there_are_as_many_as_declared(
    pool: tuple[Waiting, ...], expected: list[tuple[str, str]]
) -> None:
    assert planned(BUILT, seen(BUILT, *pool)) == expected


def test_none_waits_where_none_may() -> None:
    stopped = specs.spec(state="stopped", warm=2)
    assert planned(stopped, seen(stopped, A, B)) == [
        ("drain", "00000001"),
        ("drain", "00000002"),
    ]
    nobody = seen(BUILT, A, record=None)
    assert planned(None, nobody) == [("destroy", "")]


def test_trouble_with_this_very_spec_is_waited_out() -> None:
    held = Trouble(BUILT.digest, "no", 10, 10)
    assert planned(BUILT, seen(BUILT, warm_trouble=held)) == []
    other = replace(held, spec="another")
    assert planned(BUILT, seen(BUILT, warm_trouble=other)) == [("warm", "")]


def test_trouble_is_kept_doubles_and_does_not_outlast_a_clock_that_jumps(home: Path) -> None:
    def failing(_text: str) -> None:
        raise files.BrokenFile("no luck")

    records.keep_sandbox(home, SandboxRecord("web", BUILT, None, "", None, 0))
    said: list[str] = []

    def progress(text: str) -> None:
        said.append(text)
        if "ready to wait" in text and "no VM" not in text:
            failing(text)

    warming.fill(home, BUILT, progress)
    first = warming.trouble(home, "web")
    assert first is not None
    assert (first.spec, first.message) == (BUILT.digest, "no luck")
    assert "no luck" in said[-1]
    warming.fill(home, BUILT, progress)
    second = warming.trouble(home, "web")
    assert second is not None
    assert second.wait_seconds == 2 * first.wait_seconds
    path = home / "sandboxes/web/warm.json"
    for jumped in (0.0, second.not_before + 1e6):
        files.write_json(path, {**vars(second), "not_before": jumped})
        assert warming.trouble(home, "web") is None


def ready(home: Path, who: ProcessIdentity, **changes: Any) -> VmRecord:  # noqa: ANN401
    """A record of a waiting VM whose files are there; its process is a sleeper."""
    vm = replace(specs.vm(home, "web.00000001", identity=who, of=BUILT), kind=WARM, ready=True)
    vm = replace(vm, **changes)
    records.keep_vm(home, vm)
    vm.directory(home).mkdir(exist_ok=True)
    note(vm.directory(home), {})
    return vm


def note(directory: Path, sources: dict[str, str]) -> None:
    """What is noted of a waiting VM until it is ready."""
    warm.note_sources(directory, sources)
    (directory / "start.json").write_text("{}")
    warm.note_start(directory)


def declare(home: Path, spec: Spec = BUILT, **changes: Any) -> None:  # noqa: ANN401
    record = SandboxRecord("web", spec, None, "", None, 0)
    records.keep_sandbox(home, replace(record, **changes))


def test_the_pool_is_seen_and_what_is_left_of_it_is_a_stray(home: Path, sleeper: Sleeper) -> None:
    child, who = sleeper()
    declare(home)
    vm = ready(home, who)
    found = observe.observe(home, "web", read_back=False)
    assert [each.vm for each in found.waiting] == [vm]
    half = replace(vm, vm="web.00000002", group="x-web.00000002", ready=False, identity=None)
    records.keep_vm(home, replace(half, owner=who))
    assert len(observe.observe(home, "web", read_back=False).waiting) == 2
    child.kill()
    child.wait(10)
    found = observe.observe(home, "web", read_back=False)
    assert (found.waiting, len(found.strays)) == ((), 2)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "run"},
        {"ready": False},
        {"spec": specs.spec(state="built", warm=2, env=(("EDITOR", "ed"),))},
        {"spec": specs.spec(state="built", warm=2, timeout_seconds=5)},
        {"identity": None},
    ],
)
def test_what_does_not_wait_for_this_declaration_is_left_alone(
    home: Path, sleeper: Sleeper, change: dict[str, Any]
) -> None:
    _, who = sleeper()
    _, owner = sleeper()
    declare(home)
    vm = ready(home, who, owner=owner, **change)
    assert warm.take(home, "web", with_data=False) is None
    assert records.vm_record(home, vm.vm) == vm


@pytest.mark.parametrize(
    "what", ["boxfile", "kernel", "file", "sources", "start", "torn", "number"]
)
def test_a_vm_of_what_has_changed_is_not_taken(
    home: Path, tmp_path: Path, sleeper: Sleeper, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, who = sleeper()
    source = tmp_path / "web.Boxfile"
    source.write_text("one")
    declare(home, source=str(source), source_stamp=records.stamp(source))
    vm = ready(home, who)
    part = tmp_path / "part"
    part.write_text("one")
    note(vm.directory(home), contact.stamps([part]))
    start = vm.directory(home) / "start.json"
    match what:
        case "boxfile":
            source.write_text("two!")
        case "kernel":
            monkeypatch.setenv("BOX_KERNEL", "/another")
        case "file":
            part.write_text("two!")
        case "sources":
            (vm.directory(home) / "sources.json").unlink()
        case "start":
            start.unlink()
        case "torn":
            os.truncate(start, 1)
        case _:
            declare(home, specs.spec(state="built", warm=0))
    assert warm.take(home, "web", with_data=False) is None
    assert records.vm_record(home, vm.vm) == vm


def test_what_somebody_else_is_taking_is_left_to_them(home: Path, sleeper: Sleeper) -> None:
    _, who = sleeper()
    declare(home)
    vm = ready(home, who)
    with warm.locked(home, vm.vm):
        assert warm.take(home, "web", with_data=False) is None
        warming.end(home, vm)
    assert records.vm_record(home, vm.vm) == vm


def test_waiting_vms_count_in_full_for_memory(home: Path, sleeper: Sleeper) -> None:
    _, who = sleeper()
    half = admission.available_mib() // 2
    admission.check_memory(home, half)
    declare(home)
    ready(home, who, spec=replace(BUILT, ram_mib=admission.available_mib()))
    with pytest.raises(admission.NoMemory, match="that waiting VMs may yet use"):
        admission.check_memory(home, half)
    # Ended, it promises nothing any more.
    ready(home, who._replace(start_time_ticks=1), spec=replace(BUILT, ram_mib=1 << 20))
    admission.check_memory(home, half)


def test_the_condition_says_how_many_wait_and_why_not() -> None:
    def said(look: Observation, spec: Spec = BUILT) -> list[tuple[str, str]]:
        found = conditions.of_sandbox(spec, look, None)
        return [(each.status, each.reason) for each in found if each.type == "Warm"]

    assert said(seen(BUILT, A, B)) == [("True", "Filled")]
    assert said(seen(BUILT, A)) == [("False", "Filling")]
    assert said(seen(BUILT, A, replace(B, fault="changed"))) == [("False", "Filling")]
    held = Trouble(BUILT.digest, "no luck", 10, 10)
    assert said(seen(BUILT, A, warm_trouble=held)) == [("False", "Failed")]
    assert said(seen(BUILT), specs.spec(warm=0)) == []


def failing(meanwhile: Callable[[], object]) -> Callable[[str], None]:
    """A progress: what goes on while a VM starts, which is ended then."""

    def progress(text: str) -> None:
        if text == "getting a VM ready to wait":
            meanwhile()
            raise files.BrokenFile("its VM was ended")

    return progress


def open_times(path: Path) -> int:
    """How often this process has a file open."""
    count = 0
    for fd in Path("/proc/self/fd").iterdir():
        # The listing's own is gone by now.
        with contextlib.suppress(FileNotFoundError):
            count += fd.readlink() == path
    return count


def test_a_pass_that_brings_the_sandbox_down_meanwhile_is_waited_for(home: Path) -> None:
    """It ends the VMs first, and only then the record says that none is wanted."""
    declare(home)
    lock = home / "sandboxes/web/lock"
    with files.locked(lock):
        filler = threading.Thread(target=warming.fill, args=(home, BUILT, failing(lambda: None)))
        filler.start()
        until(lambda: open_times(lock) > 1 or not filler.is_alive())
        declare(home, specs.spec(state="stopped", warm=2))
    filler.join(60)
    assert warming.trouble(home, "web") is None
    assert [event["reason"] for event in journal.read_events(home, "web")] == []


@pytest.mark.root
def test_a_sandbox_that_is_destroyed_while_a_vm_starts_gets_no_slot_back(home: Path) -> None:
    """The VM may have been given one after `destroy` had released it."""
    declare(home)

    def destroyed() -> None:
        (home / "sandboxes/web/record.json").unlink()
        slots.allocate(home, "web")

    with root_has_ids():
        warming.fill(home, BUILT, failing(destroyed))
        assert not slots.holds(home, "web")
    assert warming.trouble(home, "web") is None
