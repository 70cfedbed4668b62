"""`doctor` through the real command line, on real homes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reconciler.engine import accelerator
from tests.live import BOX, REPO, Live, live, until

pytestmark = [pytest.mark.vm, pytest.mark.root]

SCHEMA = json.loads((REPO / "schemas" / "doctor.schema.json").read_text())


@pytest.fixture
def fresh(root_ids: None) -> Iterator[Live]:
    """An empty home: no kernel, no image, nothing."""
    with live() as it:
        yield it


def checks_of(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    value = json.loads(done.stdout)
    jsonschema.validate(value, SCHEMA)
    return {each["id"]: each for each in value["checks"]}


def of_doctors(box: Live) -> list[Path]:
    return [
        *(box.home / "sandboxes").glob("doctor-*"),
        *(box.home / "run").glob("doctor-*"),
        *(box.home / "runtime").glob("doctor-*"),
    ]


def test_the_doctor_finds_this_host_well_and_boots_a_guest_once(vms: Live) -> None:
    first = vms.box("doctor", "-o", "json")
    checks = checks_of(first)
    assert not [each for each in checks.values() if each["status"] == "failed"]
    # What a guest runs on was found by booting one, and is remembered with its reason.
    found = checks["accelerator.strict"]
    known = accelerator.remembered(vms.home, "strict")
    assert found["status"] == ("ok" if known == accelerator.KVM else "finding")
    if known == accelerator.EMULATION:
        assert accelerator.reason(vms.home, "strict").split("\n")[0] in found["found"]
    assert of_doctors(vms) == []
    assert vms.leftovers() == []
    again = vms.box("doctor")
    assert b"booting a guest" not in again.stderr
    assert os.uname().release not in again.stdout.decode()


def test_a_guest_is_booted_when_asked_for(vms: Live) -> None:
    done = vms.box("doctor", "--boot", "-o", "json")
    assert b"booting a guest under strict" in done.stderr
    assert checks_of(done)["accelerator.strict"]["status"] in {"ok", "finding"}
    assert of_doctors(vms) == []
    assert vms.leftovers() == []


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM])
def test_a_guest_that_is_being_booted_is_gone_after_a_signal(
    vms: Live, signo: signal.Signals
) -> None:
    vms.box("doctor")
    child = vms.start("doctor", "--boot")
    until(lambda: any((vms.home / "run").glob("doctor-*.json")))
    child.send_signal(signo)
    assert child.wait(60) != 0
    assert of_doctors(vms) == []
    assert vms.leftovers() == []


def test_the_doctor_names_what_is_missing_and_the_way_out(fresh: Live) -> None:
    checks = checks_of(fresh.box("doctor", "-o", "json", status=1))
    (bad,) = [each for each in checks.values() if each["status"] == "failed"]
    assert bad["id"] == "kernel"
    assert "quickstart" in bad["fix"]
    assert checks["accelerator.strict"]["status"] == "not_applicable"
    text = fresh.box("doctor", status=1).stdout.decode().splitlines()
    assert text[1].startswith("FAILED   kernel: ")
    assert text[2].startswith("         fix: ")


def in_another_etc(box: Live, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = f'mount --make-rprivate / && mount --bind {tmp_path}/etc /etc && exec "$0" "$@"'
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, str(BOX), *words],
        env=box.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=100,
        check=False,
    )


def test_fix_brings_what_is_missing_and_looks_again_and_twice_is_once(
    vms: Live, tmp_path: Path
) -> None:
    vms.box("doctor")
    shutil.copytree("/etc", tmp_path / "etc", symlinks=True)
    for name in ("subuid", "subgid"):
        (tmp_path / "etc" / name).write_text("somebody:100000:65536\n")
    bad = in_another_etc(vms, tmp_path, "doctor", "-o", "json")
    assert bad.returncode == 1
    assert checks_of(bad)["slots"]["status"] == "failed"

    mended = in_another_etc(vms, tmp_path, "doctor", "--fix", "-o", "json")
    assert mended.returncode == 0, mended.stderr
    assert b"bringing" in mended.stderr
    assert b"$ usermod --add-subuids " in mended.stderr
    assert checks_of(mended)["slots"]["status"] == "ok"
    assert checks_of(mended)["container.strict"]["status"] == "ok"
    (given,) = json.loads(mended.stdout)["mended"]
    assert "subordinate IDs for root" in given
    table = (tmp_path / "etc" / "subuid").read_text()
    assert table.startswith("somebody:100000:65536\n")

    again = in_another_etc(vms, tmp_path, "doctor", "--fix", "-o", "json")
    assert again.returncode == 0
    assert json.loads(again.stdout)["mended"] == []
    assert (tmp_path / "etc" / "subuid").read_text() == table


def test_fix_installs_nothing_and_says_so(fresh: Live) -> None:
    done = fresh.box("doctor", "--fix", "-o", "json", status=1)
    assert b"nothing here is safe to mend unasked" in done.stderr
    assert json.loads(done.stdout)["mended"] == []
    assert not (fresh.home / "kernels").exists()
