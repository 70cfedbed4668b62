"""`inspect` of what is not up; of VMs that are, in test_vm_readback.py."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from reconciler.engine import records
from reconciler.engine.home import open_home
from reconciler.linux import identity
from reconciler.surfaces.cli import app
from tests.engine import specs


def test_a_vmm_that_somebody_killed_has_no_pid_any_more(
    box_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = open_home()
    with subprocess.Popen(["/bin/sleep", "60"]) as vmm:
        who = identity.identify(vmm.pid)
        vmm.kill()
    assert who is not None
    records.keep_sandbox(home, specs.RECORD)
    records.keep_vm(home, specs.vm(home, identity=who))
    assert app.main(["inspect", "web", "-o", "json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["running"], value["pid"], value["facts"]) == (False, None, [])
