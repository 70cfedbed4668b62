"""What is gathered for a security report: every VM that there is, and none that is not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.confinement.facts import Verdict
from reconciler.confinement.promises import PROMISES
from reconciler.engine import boundary, proof, records
from reconciler.engine.records import WARM, VmRecord
from reconciler.engine.security_report import STARTING, UP, SecurityReport, report_of
from reconciler.engine.spec import Spec
from reconciler.errors import NotFound, Refused
from reconciler.linux import files, identity
from reconciler.linux.identity import ProcessIdentity
from tests.confinement.readings import POLICY
from tests.engine.specs import SPEC, vm


@pytest.fixture
def home(box_home: Path) -> Path:
    for name in ("run", "sandboxes", "proofs"):
        (box_home / name).mkdir()
    return box_home


@pytest.fixture
def sleeper() -> Iterator[ProcessIdentity]:
    """A process that stands in a VMM's place, and is held to nothing."""
    child = subprocess.Popen(["sleep", "60"])
    who = identity.identify(child.pid)
    assert who is not None
    yield who
    child.kill()
    child.wait(10)


def nothing() -> Spec:
    raise NotFound("There is no sandbox web.")


def keep(home: Path, record: VmRecord) -> VmRecord:
    directory = record.directory(home)
    directory.mkdir()
    files.write_json(directory / "policy.json", POLICY.to_json())
    records.keep_vm(home, record)
    return record


def verdicts(report: SecurityReport) -> set[Verdict | None]:
    return {fact.verdict for each in report.vms for fact in each.facts}


def test_a_name_that_nobody_knows(home: Path) -> None:
    with pytest.raises(NotFound):
        report_of(home, "web", nothing)


def test_nothing_built_is_refused_with_what_to_do(home: Path) -> None:
    with pytest.raises(Refused, match="Nothing is built for web yet") as refused:
        report_of(home, "web", lambda: SPEC)
    assert refused.value.hint == "box build web"


def test_an_unconfined_process_fails_what_it_should_keep(
    home: Path, sleeper: ProcessIdentity
) -> None:
    keep(home, vm(home, identity=sleeper))
    report = report_of(home, "web", nothing)
    (found,) = report.vms
    assert (found.state, found.who) == (UP, sleeper)
    assert found.policy == POLICY
    assert report.failed
    assert {"seccomp", "namespace.net", "no_new_privs"} <= {f.promise.id for f in found.failed}


def test_a_lost_policy_is_unreadable_and_the_vm_still_reported(
    home: Path, sleeper: ProcessIdentity
) -> None:
    record = keep(home, vm(home, identity=sleeper))
    (record.directory(home) / "policy.json").write_text("{}")
    report = report_of(home, "web", nothing)
    assert report.vms[0].policy is None
    assert verdicts(report) == {Verdict.UNREADABLE}
    assert len(report.vms[0].facts) == len(PROMISES)


def test_a_broken_record_is_a_failure_not_an_absence(home: Path) -> None:
    (home / "run" / "web.json").write_text("{}")
    report = report_of(home, "web", nothing)
    assert report.lost == ("web",)
    assert report.verdict is Verdict.UNREADABLE
    assert report.failed


def test_a_vm_that_ended_is_not_in_it(home: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])
    gone = identity.identify(child.pid)
    child.kill()
    child.wait(10)
    assert gone is not None
    keep(home, vm(home, identity=gone))
    with pytest.raises(NotFound):
        report_of(home, "web", nothing)


def test_waiting_vms_are_read_once_they_wait_and_not_before(
    home: Path, sleeper: ProcessIdentity
) -> None:
    me = identity.identify(os.getpid())
    for name, ready in (("web.00000001", True), ("web.00000002", False)):
        record = vm(home, name, identity=sleeper, owner=None if ready else me)
        keep(home, replace(record, kind=WARM, ready=ready, with_data=False))
    report = report_of(home, "web", nothing)
    first, second = report.vms
    assert (first.state, bool(first.failed), first.data) == (UP, True, None)
    assert (second.state, second.facts, second.policy) == (STARTING, (), None)
    assert report.failed


def test_a_boxfile_that_is_broken_by_now_hides_no_running_vm(
    home: Path, sleeper: ProcessIdentity
) -> None:
    record = vm(home, "web.00000001", identity=sleeper, owner=identity.identify(os.getpid()))
    keep(home, record)
    assert [each.vm for each in report_of(home, "web", nothing).vms] == ["web.00000001"]


def proof_file(home: Path, fingerprint: str, **changes: object) -> None:
    kernels = {
        side: {"release": "6.1", "version": "#1", "boot_id": f"{side}-boot"}
        for side in ("guest", "host")
    }
    value = {"backend": "qemu", "proven_at": "2026-12-01T10:00:00.000Z", **kernels, **changes}
    files.write_json(home / "proofs" / f"qemu-{fingerprint}.json", value)


def test_a_proof_that_proves_nothing_is_no_proof(home: Path) -> None:
    assert boundary.of_next(home, "qemu", "ab").have.startswith("not proven yet")
    proof_file(home, "ab")
    found = boundary.of_next(home, "qemu", "ab")
    assert (found.verdict, found.have) == (None, "a kernel of its own, 6.1")
    one = {"release": "6.1", "version": "#1", "boot_id": "host-boot"}
    wrong: list[tuple[str, object]] = [
        ("guest", one),
        ("guest", "x"),
        ("guest", None),
        ("host", {}),
    ]
    for side, value in wrong:
        proof_file(home, "ab", **{side: value})
        assert proof.proof_of(home, "qemu", "ab") is not None
        assert boundary.of_next(home, "qemu", "ab").guest is None


def test_a_proof_of_other_files_than_those_of_now_differs(home: Path) -> None:
    record = replace(vm(home), fingerprint="ab")
    assert boundary.of_running(home, record).verdict is Verdict.UNREADABLE
    proof_file(home, "ab")
    # Whatever this host has, its digest is not "ab"; without any of it, that cannot be told.
    assert boundary.of_running(home, record).verdict in {Verdict.DIFFERS, Verdict.UNREADABLE}
