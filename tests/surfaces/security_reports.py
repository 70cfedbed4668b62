"""Security reports from captured readings: no VM runs for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reconciler.confinement import promises
from reconciler.confinement.facts import Verdict
from reconciler.confinement.judging import judge
from reconciler.confinement.policy import Policy
from reconciler.confinement.reading import Reading
from reconciler.engine import accelerator
from reconciler.engine.boundary import Boundary, Kernel
from reconciler.engine.records import STANDING
from reconciler.engine.security_report import DOWN, UP, Checked, SecurityReport, VmReport
from reconciler.linux.identity import ProcessIdentity
from tests.confinement.readings import PID, POLICY, READING
from tests.engine.specs import spec

READ_AT = "2026-12-01T10:00:00.000Z"
WHO = ProcessIdentity(PID, 12_345, "11e3694e-9248-4552-8b3f-9a17029a5c13", 1, 2)
PROVEN = Boundary(
    "ab" * 32,
    "a kernel of its own, 6.1.0-57-cloud-amd64",
    Verdict.SAME,
    Kernel("6.1.0-57-cloud-amd64", "8fa19ec5-3f77-4599-a6d3-77429c0de506"),
    Kernel("6.18.44", "11e3694e-9248-4552-8b3f-9a17029a5c13"),
    READ_AT,
)


def checked(reading: Reading, policy: Policy = POLICY) -> tuple[Checked, ...]:
    return tuple(
        Checked(promises.promise(fact.promise), fact.want, fact.have, fact.verdict)
        for fact in judge(policy, reading)
    )


UNREAD = tuple(Checked(each, None, None, None) for each in promises.PROMISES)


def vm(reading: Reading = READING, **changes: object) -> VmReport:
    """A strict, emulated, standing VM that was read; every field may be another one."""
    whole = VmReport(
        vm="web",
        kind=STANDING,
        state=UP,
        spec=spec(),
        incarnation=3,
        who=WHO,
        started_at=READ_AT,
        accelerator=accelerator.EMULATION,
        emulated_because="Could not access KVM kernel module: Permission denied",
        source="/home/somebody/.box/run/web/policy.json",
        policy=POLICY,
        data=(Path("/home/somebody/.box/sandboxes/web/data.img"), 64 << 20),
        boundary=PROVEN,
        frozen=None,
        facts=checked(reading),
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def down(policy: Policy = POLICY, **changes: object) -> VmReport:
    """The same VM before its start."""
    fields: dict[str, object] = {
        "state": DOWN,
        "who": None,
        "incarnation": 0,
        "started_at": "",
        "boundary": replace(PROVEN, verdict=None),
        "policy": policy,
        "facts": UNREAD,
        **changes,
    }
    return vm(**fields)  # type: ignore[arg-type]


def report(*vms: VmReport, name: str = "web", lost: tuple[str, ...] = ()) -> SecurityReport:
    return SecurityReport(name, READ_AT, vms or (vm(),), lost)
