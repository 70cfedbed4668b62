from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.confinement.facts import Verdict
from reconciler.confinement.promises import PROMISES
from reconciler.engine import observe, records, snapshots
from reconciler.linux import files
from reconciler.linux.identity import ProcessIdentity
from reconciler.vmm.qemu import Machine
from tests.engine import specs

Sleeper = Callable[[], tuple[subprocess.Popen[bytes], ProcessIdentity]]


def test_nothing_is_known_of_a_name_that_is_not_there(home: Path) -> None:
    nothing = observe.Observation("web", None, None, running=False, built=False)
    assert observe.observe(home, "web") == nothing
    assert observe.names(home) == ()


def test_a_vm_runs_as_long_as_its_very_process(home: Path, sleeper: Sleeper) -> None:
    child, who = sleeper()
    records.keep_vm(home, specs.vm(home, identity=who))
    assert observe.observe(home, "web", read_back=False).running
    child.kill()
    # Before anybody has reaped it: a zombie runs nothing.
    while not Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].startswith(" Z"):
        pass
    assert not observe.observe(home, "web", read_back=False).running
    child.wait(10)
    assert not observe.observe(home, "web", read_back=False).running


@pytest.mark.parametrize(
    "change", [{"boot_id": "another boot"}, {"start_time_ticks": 1}, {"exe_ino": 1}]
)
def test_a_process_with_the_same_pid_is_another_one(
    home: Path, sleeper: Sleeper, change: dict[str, int]
) -> None:
    _, who = sleeper()
    records.keep_vm(home, specs.vm(home, identity=who._replace(**change)))  # type: ignore[arg-type]
    seen = observe.observe(home, "web", read_back=False)
    assert seen.vm is not None
    assert not seen.running


def test_a_vm_of_unknown_process_is_half_started(home: Path) -> None:
    records.keep_vm(home, specs.vm(home))
    seen = observe.observe(home, "web")
    assert (seen.vm, seen.running, seen.facts) == (specs.vm(home), False, ())
    assert observe.names(home) == ("web",)


def test_a_runs_vm_is_a_stray_once_its_command_is_gone(home: Path, sleeper: Sleeper) -> None:
    child, who = sleeper()
    record = specs.vm(home, "web.12345678", owner=who)
    records.keep_vm(home, record)
    assert observe.observe(home, "web").strays == ()
    child.kill()
    child.wait(10)
    assert observe.observe(home, "web").strays == (record,)
    assert observe.observe(home, "db").strays == ()


def test_a_broken_record_of_a_vm_is_only_its_sandboxs_matter(home: Path) -> None:
    records.keep_vm(home, specs.vm(home, "db"))
    records.keep_vm(home, specs.vm(home, "web"))
    (home / "run/web.json").write_text("{}")
    assert observe.names(home) == ("db", "web")
    assert observe.observe(home, "db").broken == ()
    seen = observe.observe(home, "web")
    assert (seen.vm, seen.running, seen.broken) == (None, False, ("web",))


@pytest.mark.parametrize("policy", [None, "", "{}", '{"uid_map": 5}', '{"binds": ["x"]}'])
def test_a_running_vm_whose_policy_is_lost_is_not_confined(
    home: Path, sleeper: Sleeper, policy: str | None
) -> None:
    _, who = sleeper()
    record = specs.vm(home, identity=who)
    records.keep_vm(home, record)
    record.directory(home).mkdir()
    if policy is not None:
        (record.directory(home) / "policy.json").write_text(policy)
    seen = observe.observe(home, "web")
    assert seen.running
    assert seen.confined is False
    assert [fact.promise for fact in seen.facts] == [each.id for each in PROMISES]
    assert {fact.verdict for fact in seen.facts} == {Verdict.UNREADABLE}


def test_built_means_that_the_snapshot_of_this_very_spec_is_there(home: Path) -> None:
    machine = Machine("x86_64", "tcg", 1, 256, 16 << 20, readonly=False)
    records.keep_sandbox(home, specs.RECORD)
    assert not observe.observe(home, "web").built
    snapshots.keep(home, "key", machine, lambda fd: files.write_all(fd, b"state"))
    snapshots.remember(home, specs.SPEC, "key")
    assert observe.observe(home, "web").built
    records.keep_sandbox(home, replace(specs.RECORD, spec=specs.spec(ram_mib=512)))
    assert not observe.observe(home, "web").built
    records.keep_sandbox(home, specs.RECORD)
    snapshots.state_path(home, "key").unlink()
    assert not observe.observe(home, "web").built
