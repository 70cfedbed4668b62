"""The end of a command's VM: what its guest has not written out is waited for, and told."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.engine import journal, once, powering_off, records, warm
from reconciler.engine.contact import Contact, contact_of
from reconciler.engine.stopping import stop_vm
from reconciler.guest import channel
from reconciler.linux import identity
from reconciler.linux.identity import ProcessIdentity
from tests.engine import specs

Sleeper = Callable[[], tuple[subprocess.Popen[bytes], ProcessIdentity]]
VM = "web.00000001"


def events(home: Path) -> list[str]:
    return [str(event["reason"]) for event in journal.read_events(home, "web")]


def silent(home: Path, who: ProcessIdentity) -> records.VmRecord:
    """A VM with /data that nobody answers for, as one that is stuck in writing it out."""
    vm = replace(specs.vm(home, VM, identity=who), with_data=True)
    records.keep_vm(home, vm)
    return vm


def test_a_run_that_ends_its_vm_unwritten_says_so(
    home: Path, sleeper: Sleeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, who = sleeper()
    vm = silent(home, who)

    def take(*_: object, noting: Callable[[str, str], object], **_given: object) -> Contact:
        noting(VM, vm.token)
        return contact_of(home, vm)

    monkeypatch.setattr(warm, "take", take)
    machine = once.Machine(home, "web")
    machine.start(specs.spec, with_data=True, wait_seconds=None, progress=print)
    assert machine.end_soon() == (VM,)
    assert not identity.runs(who)
    assert (machine.unwritten, events(home)) == (True, ["NotWrittenOut"])


def test_so_does_a_stop_and_not_of_a_vm_that_had_ended(home: Path, sleeper: Sleeper) -> None:
    child, who = sleeper()
    assert not stop_vm(home, silent(home, who))
    assert events(home) == ["NotWrittenOut"]
    child.kill()
    child.wait(10)
    assert not stop_vm(home, silent(home, who))
    assert events(home) == ["NotWrittenOut"]


def test_a_guest_that_writes_out_has_a_minute(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sleeper: Sleeper
) -> None:
    waited = []

    class Writing(contextlib.nullcontext[object]):
        def __init__(self, *_: object) -> None:
            super().__init__(self)

        def shutdown(self, _ms: int) -> None:
            pass

        def down(self, seconds: float) -> None:
            waited.append(seconds)

    @contextlib.contextmanager
    def port(*_: object) -> Iterator[None]:
        yield

    monkeypatch.setattr(channel, "claim_port", port)
    monkeypatch.setattr(channel, "Session", Writing)
    _, who = sleeper()
    with identity.open_process(who) as vmm:
        assert vmm is not None
        assert powering_off.power_off(tmp_path, b"", vmm, 1000)
    assert waited[0] >= 60
