"""The end of a command's VM: what its guest has not written out is waited for, and told."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from reconciler.engine import journal, records
from reconciler.engine.stopping import stop_vm
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


def test_a_stop_of_an_unwritten_vm_says_so_and_not_of_one_that_had_ended(
    home: Path, sleeper: Sleeper
) -> None:
    child, who = sleeper()
    assert not stop_vm(home, silent(home, who))
    assert events(home) == ["NotWrittenOut"]
    child.kill()
    child.wait(10)
    assert not stop_vm(home, silent(home, who))
    assert events(home) == ["NotWrittenOut"]
