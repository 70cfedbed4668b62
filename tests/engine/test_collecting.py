"""Which snapshots go, on a host without a guest kernel; with one, see test_vm_restore.py."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.engine import collecting, passes, records, snapshots
from reconciler.linux import files
from reconciler.linux.identity import ProcessIdentity
from reconciler.vmm.qemu import Machine
from tests.engine import specs

MACHINE = Machine("x86_64", "tcg", 1, 256, 16 << 20, readonly=False)
Sleeper = Callable[[], tuple[subprocess.Popen[bytes], ProcessIdentity]]


@pytest.fixture(autouse=True)
def no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOX_KERNEL", raising=False)


def make(home: Path, *keys: str) -> None:
    for key in keys:
        snapshots.keep(home, key, MACHINE, lambda fd: files.write_all(fd, b"memory"))


def declare(home: Path, key: str) -> None:
    records.keep_sandbox(home, specs.RECORD)
    snapshots.remember(home, specs.SPEC, key)


def test_one_that_nobody_knows_goes_and_a_sandboxs_last_stays(home: Path) -> None:
    make(home, "mine", "nobodys")
    declare(home, "mine")
    assert collecting.collect(home) == ("nobodys",)
    assert snapshots.keys(home) == {"mine"}
    assert collecting.collect(home) == ()


def test_a_sandbox_whose_record_is_broken_keeps_its_own(home: Path) -> None:
    make(home, "mine", "nobodys")
    declare(home, "mine")
    (home / "sandboxes/web/record.json").write_text("{")
    assert collecting.collect(home) == ("nobodys",)


def test_what_a_running_vm_was_started_from_stays(home: Path, sleeper: Sleeper) -> None:
    make(home, "old", "nobodys")
    _, who = sleeper()
    records.keep_vm(home, replace(specs.vm(home, identity=who), snapshot="old"))
    assert collecting.collect(home) == ("nobodys",)
    records.forget_vm(home, "web")
    assert collecting.collect(home) == ("old",)


def test_nothing_goes_while_it_is_unknown_what_a_vm_was_started_from(home: Path) -> None:
    make(home, "old")
    records.keep_vm(home, specs.vm(home))
    assert collecting.collect(home) == ()
    (home / "run/web.json").write_text("{")
    assert collecting.collect(home) == ()
    records.forget_vm(home, "web")
    assert collecting.collect(home) == ("old",)


def test_a_pass_that_does_something_says_what_went(home: Path) -> None:
    make(home, "old")
    spec = specs.spec(state="stopped")
    for _ in range(2):
        passes.run_pass(home, "web", spec, source=None, folder=None, progress=print)
        assert snapshots.keys(home) == frozenset()
    journal = (home / "sandboxes/web/journal.jsonl").read_text()
    assert journal.count("1 snapshot that no sandbox uses any more") == 1


def test_destroying_takes_its_snapshot_along(home: Path) -> None:
    make(home, "mine")
    declare(home, "mine")
    passes.destroy(home, "web", with_data=False, progress=print)
    assert snapshots.keys(home) == frozenset()
