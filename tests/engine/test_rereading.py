"""What a start finds, and what later readings take from it, of a real container."""

from __future__ import annotations

import dataclasses
import secrets
import shutil
import tempfile
from pathlib import Path

import pytest

from reconciler.confinement.facts import Fact, Verdict
from reconciler.confinement.policy import BindMount, Policy, Slot, policy_for
from reconciler.engine import records, rereading
from tests.engine import specs
from tests.linux import container
from tests.linux.container import Spec

pytestmark = pytest.mark.root

SLOT = Slot(0, 3_650_000_000, 3_650_000_000)


SAYS = "what was noted at its start is lost: "
MENDS = "; `box down web && box up web` notes it anew"


def gone(path: Path) -> str:
    path.unlink()
    return f"{path} is missing"


def empty(path: Path) -> str:
    path.write_bytes(b"")
    return f"{path} is not JSON"


def torn(path: Path) -> str:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return f"{path} is not JSON"


def of_nothing(path: Path) -> str:
    path.write_bytes(b"{}")
    return f"{path} is not what box notes at a start"


def a_folder(path: Path) -> str:
    path.unlink()
    path.mkdir()
    return f"{path} is not a file of ours"


# And the label, where a security module labels processes.
REST_ON_IT = {"seccomp.filter", "mounts.declared", "files.open"}
LOSSES = (gone, empty, torn, of_nothing, a_folder)


def failed(facts: tuple[Fact, ...]) -> set[str]:
    return {fact.promise for fact in facts if fact.failed}


def policy_of(program: Path) -> Policy:
    return policy_for(
        isolation="strict",
        ram_mib=128,
        cpus=1,
        own_uid=0,
        own_gid=0,
        slot=SLOT,
        cgroup=f"/box-test-{secrets.token_hex(4)}",
        binds=(BindMount(str(program), "/bin/vmm"),),
    )


def test_a_start_is_not_judged_by_what_it_finds_itself(home: Path, tmp_path: Path) -> None:
    """The right name, another file: that this is what lies there makes it no declared one."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o755)
        program = container.build_probe(directory)
        copy = Path(shutil.copy(program, directory / "copy"))

        def other(spec: Spec) -> None:
            mount = next(each for each in spec["mounts"] if each["destination"] == "/bin/vmm")
            mount["source"] = str(copy)

        wanted = policy_of(program)
        with container.running(wanted, ["/bin/vmm"], weaken=other) as who:
            found = rereading.judge_start(home, tmp_path, "web", who, wanted)
            assert failed(found) == {"mounts.declared"}


def test_who_takes_away_what_was_noted_is_told_of_and_silences_nothing(home: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o755)
        wanted = policy_of(container.build_probe(directory))
        with container.running(wanted, ["/bin/vmm"]) as who:
            vm = specs.vm(home, identity=who)
            noted = vm.directory(home) / "start.json"
            noted.parent.mkdir()
            assert failed(rereading.judge_start(home, noted.parent, "web", who, wanted)) == set()
            assert failed(rereading.judge_again(home, vm, wanted)) == set()
            known = noted.read_bytes()
            for lose in LOSSES:
                said = lose(noted)
                found = [each for each in rereading.judge_again(home, vm, wanted) if each.failed]
                assert {each.promise for each in found} == REST_ON_IT, lose
                assert {each.verdict for each in found} == {Verdict.UNREADABLE}
                assert {each.have for each in found} == {SAYS + said + MENDS}
                once = dataclasses.replace(vm, kind=records.ONCE)
                also = [each for each in rereading.judge_again(home, once, wanted) if each.failed]
                assert {each.have for each in also} == {SAYS + said}
                shutil.rmtree(noted) if noted.is_dir() else noted.unlink(missing_ok=True)
                noted.write_bytes(known)
                assert failed(rereading.judge_again(home, vm, wanted)) == set()
