"""A spec and records for tests that start no VM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from reconciler.engine import records, traces
from reconciler.engine.records import ONCE, STANDING, SandboxRecord, VmRecord
from reconciler.engine.spec import Spec
from reconciler.linux.identity import ProcessIdentity

SPEC = Spec(
    name="web",
    base="builtin:busybox",
    backend="qemu",
    isolation="strict",
    cpus=1,
    ram_mib=256,
    network="none",
    readonly=False,
    timeout_seconds=0,
    env=(("EDITOR", "vi"),),
    data_size="16M",
    state="running",
    on_drift="stop",
    protect=False,
)
RECORD = SandboxRecord("web", SPEC, "/folder/web.Boxfile", "1:2:3", "/folder", 1)


def spec(**changes: object) -> Spec:
    return replace(SPEC, **changes)  # type: ignore[arg-type]


def vm(
    home: Path,
    name: str = "web",
    *,
    identity: ProcessIdentity | None = None,
    owner: ProcessIdentity | None = None,
    of: Spec = SPEC,
) -> VmRecord:
    """A VM's record; one with a dot in its name is a `run`'s."""
    return VmRecord(
        vm=name,
        sandbox=records.sandbox_of(name),
        kind=ONCE if "." in name else STANDING,
        incarnation=1,
        group=traces.group_of(home, name),
        spec=of,
        token="ab" * 32,
        identity=identity,
        owner=owner,
    )
