"""Two security reports compared: every difference, once, and not what has to differ."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from reconciler.confinement.policy import BindMount, IdRange, Policy
from reconciler.engine.records import WARM
from reconciler.engine.security_report import SecurityReport, VmReport
from reconciler.errors import Refused
from reconciler.surfaces.security_report import comparing
from reconciler.surfaces.security_report.comparing import Comparison, compare
from tests.confinement.readings import POLICY
from tests.confinement.test_judging import DIFFERENT
from tests.engine.specs import spec
from tests.surfaces.security_reports import checked, down, report, vm

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "schemas" / "security-diff.schema.json").read_text()
)
APART = replace(
    POLICY,
    uid_map=(IdRange(0, 400_000, 65_536),),
    gid_map=(IdRange(0, 400_000, 65_536),),
    cgroup="/box-1000/other",
    open_files=("/dev/null", "/other/data.img"),
)
STANDARD = spec(isolation="standard")


def other(policy: Policy = APART, **changes: object) -> SecurityReport:
    return report(down(policy, **changes), name="other")


def against(right: SecurityReport, left: VmReport | None = None) -> Comparison:
    return compare(report(left or down()), right)


def subjects(comparison: Comparison) -> list[str]:
    jsonschema.validate(json.loads(json.dumps(comparing.document(comparison))), SCHEMA)
    return [each.subject for each in comparison.differences]


def said(comparison: Comparison) -> str:
    return "\n".join(line.text for line in comparing.lines(comparison))


def test_two_of_one_kind_differ_only_in_what_is_each_ones_own() -> None:
    found = against(other())
    assert subjects(found) == []
    assert found.status == 0
    assert set(found.own) >= {"uid_map", "gid_map", "uid", "cgroup", "open_files"}
    assert "no difference" in said(found)


@pytest.mark.parametrize(
    ("right", "wanted"),
    [
        (
            other(replace(APART, memory_limit_bytes=1 << 30)),
            ["limits.memory_bytes", "limits.memory_and_swap_bytes"],
        ),
        (other(replace(APART, pids_limit=7)), ["limits.pids"]),
        (other(replace(APART, rlimits=APART.rlimits[1:])), ["limits.rlimits.RLIMIT_CORE"]),
        (other(replace(APART, devices=())), ["devices"]),
        (other(replace(APART, capabilities=("CAP_CHOWN",))), ["capabilities"]),
        (other(replace(APART, no_new_privileges=False)), ["no_new_privs"]),
        (other(replace(APART, namespaces=("user",))), ["namespaces"]),
        (
            other(replace(APART, seccomp_profile="nothere")),
            ["seccomp.profile", "seccomp.sha256"],
        ),
        (other(data=(Path("/elsewhere"), 1)), ["data.bytes"]),
        (other(spec=spec(network="bridge")), ["network.declared"]),
        (other(accelerator="kvm"), ["accelerator"]),
        (other(boundary=None), ["boundary.fingerprint"]),
    ],
)
def test_each_difference_is_told_once(right: SecurityReport, wanted: list[str]) -> None:
    found = against(right)
    assert subjects(found) == wanted
    assert found.status == 2
    assert f"{len(wanted)} difference" in said(found)


def test_a_mount_more_and_a_mount_that_can_be_written() -> None:
    (mine,) = APART.binds
    changed = (replace(mine, read_only=False), BindMount("/src", "/src"))
    found = against(other(replace(APART, binds=changed)))
    assert subjects(found) == ["mounts./bin/vmm", "mounts./src"]
    assert "source /usr/bin/vmm, read_only False" in said(found)


def test_two_strict_sandboxes_that_share_their_ids_are_a_finding() -> None:
    shared = replace(APART, uid_map=POLICY.uid_map)
    found = against(other(shared))
    assert subjects(found) == ["uid_map"]
    assert all(each.note for each in found.differences)
    assert "each must have its own" in said(found)
    # Under standard both are the user.
    assert subjects(against(other(shared, spec=STANDARD), down(spec=STANDARD))) == []


def test_one_that_has_failed_is_a_failure_whatever_else_differs() -> None:
    broken, reading = DIFFERENT[0]
    failed = report(vm(reading), name="other")
    found = against(failed, vm())
    assert broken in subjects(found)
    assert found.status == 1


def test_one_that_does_not_run_is_compared_by_what_it_would_be_held_to() -> None:
    found = against(report(vm(policy=APART), name="other"), down())
    assert subjects(found) == []
    assert found.status == 0
    assert "web at 2026-12-01T10:00:00.000Z: not_read" in said(found)
    found = against(report(vm(policy=replace(APART, pids_limit=7)), name="other"), down())
    assert subjects(found) == ["limits.pids"]


def test_one_whose_configuration_is_lost_differs_in_all_of_it() -> None:
    found = against(report(vm(policy=None), name="other"), vm())
    assert set(subjects(found)) > {"limits.pids", "capabilities", "mounts./bin/vmm"}


def test_without_a_standing_vm_there_is_nothing_to_compare() -> None:
    pool = report(vm(kind=WARM, vm="other.00000001"), name="other")
    with pytest.raises(Refused, match="no standing VM"):
        against(pool)


def test_hostile_text_is_only_text() -> None:
    hostile = "\x1b[2J\nweb"
    found = against(other(replace(APART, devices=(hostile,)), facts=checked(DIFFERENT[0][1])))
    for line in comparing.lines(found):
        assert line.text.isprintable()
        assert len(line.text) <= 80
