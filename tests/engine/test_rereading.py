"""What a start finds, and what later readings take from it, of a real container."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from pathlib import Path

import pytest

from reconciler.confinement.facts import Fact
from reconciler.confinement.policy import BindMount, Slot, policy_for
from reconciler.engine import rereading
from tests.linux import container
from tests.linux.container import Spec

pytestmark = pytest.mark.root

SLOT = Slot(0, 3_650_000_000, 3_650_000_000)


def failed(facts: tuple[Fact, ...]) -> set[str]:
    return {fact.promise for fact in facts if fact.failed}


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
        with container.running(wanted, ["/bin/vmm"], weaken=other) as who:
            found = rereading.judge_start(home, tmp_path, "web", who, wanted)
            assert failed(found) == {"mounts.declared"}
