"""The read-back of real VMMs, beside each other and while their guests work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.confinement.facts import Fact, Verdict
from reconciler.engine import observe, records
from reconciler.engine.records import VmRecord
from reconciler.linux import files
from tests.live import Live

pytestmark = [pytest.mark.vm, pytest.mark.root]


def record(vms: Live, name: str) -> VmRecord:
    (found,) = records.vm_records(vms.home, name)
    return found


def facts(vms: Live, name: str) -> dict[str, Fact]:
    read = observe.read_facts(vms.home, record(vms, name))
    return {fact.promise: fact for fact in read}


def failed(found: dict[str, Fact]) -> dict[str, str]:
    return {name: fact.have for name, fact in found.items() if fact.failed}


def states(pid: int) -> set[str]:
    return {
        path.read_text().rpartition(") ")[2][0] for path in Path(f"/proc/{pid}/task").glob("*/stat")
    }


def test_two_vmms_keep_every_promise_beside_each_other(vms: Live) -> None:
    for name in ("web", "other"):
        vms.declare(name)
    vms.box("sync", str(vms.folder))
    for name in ("web", "other"):
        found = facts(vms, name)
        assert failed(found) == {}
        assert found["apart.namespaces"].have == "nothing in common with 1 other sandbox"
        assert found["apart.ids"].verdict is Verdict.SAME
        shown = found["seccomp.filter"]
        hidden = Verdict.NOT_APPLICABLE if os.getuid() else Verdict.SAME
        assert shown.verdict is hidden, shown
        assert ("CAP_SYS_ADMIN" if os.getuid() else "as at its start: sha256 ") in shown.have


def test_what_differs_from_the_start_is_told(vms: Live) -> None:
    vms.declare("web")
    vms.box("up", "web")
    noted = record(vms, "web").directory(vms.home) / "start.json"
    value = files.read_json(noted)
    files.write_json(noted, {**value, "filters": [99]})
    assert set(failed(facts(vms, "web"))) == {"seccomp.filter"}
    files.write_json(noted, value)
    assert failed(facts(vms, "web")) == {}


def test_a_vm_of_which_nothing_noted_is_left_is_a_finding_until_it_is_started_anew(
    vms: Live,
) -> None:
    vms.declare("web")
    vms.box("up", "web")
    noted = record(vms, "web").directory(vms.home) / "start.json"
    noted.unlink()
    found = facts(vms, "web")
    assert {"seccomp.filter", "mounts.declared", "files.open"} <= set(failed(found))
    assert {each.verdict for each in found.values() if each.failed} == {Verdict.UNREADABLE}
    shown = vms.box("inspect", "web", status=1).stdout
    assert b"start.json is missing; `box down web && box up web` notes it anew" in shown
    vms.box("sync", str(vms.folder), status=None)
    drifts = [each for each in vms.events("web") if each["reason"] == "Drift"]
    assert {"seccomp.filter", "mounts.declared"} <= {each["promise"] for each in drifts}
    vms.box("down", "web")
    vms.box("up", "web")
    assert failed(facts(vms, "web")) == {}
