"""What is: one sandbox as it is found in /proc, its cgroup and its files, at this moment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.data import disk
from reconciler.engine import contact, drift, freezing, records, snapshots, traces, warming
from reconciler.engine.freezing import Frozen
from reconciler.engine.home import disk_of
from reconciler.engine.records import ONCE, STANDING, WARM, SandboxRecord, VmRecord
from reconciler.engine.warming import Trouble
from reconciler.linux import files, identity

if TYPE_CHECKING:
    from reconciler.confinement.facts import Fact


@dataclass(frozen=True)
class Waiting:
    """A VM of the pool; `fault` is why it must not be used, "" when it may be.

    `differences` are the facts that are not as promised, if that is why.
    """

    vm: VmRecord
    fault: str = ""
    differences: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class Observation:
    """One sandbox: `vm` is what was written of its standing VM, `running` whether that is so.

    `strays` are VMs that nobody waits for any more, `waiting` those that wait for a command,
    `broken` the names of those whose records are lost or cannot be read. `facts` are empty unless
    they were read. `drifts` are the promises whose last reading differed and has not been
    answered. `data_bytes` is the size of its /data disk, None without one. `frozen` is what is
    noted of a running VM's freezing, `stopped` the PID of a VMM that somebody else stopped.
    """

    name: str
    record: SandboxRecord | None
    vm: VmRecord | None
    running: bool
    built: bool
    strays: tuple[VmRecord, ...] = ()
    facts: tuple[Fact, ...] = ()
    broken: tuple[str, ...] = ()
    drifts: tuple[str, ...] = ()
    data_bytes: int | None = None
    waiting: tuple[Waiting, ...] = ()
    warm_trouble: Trouble | None = None
    """Why no more of them are got ready for now."""
    frozen: Frozen | None = None
    stopped: int | None = None

    @property
    def confined(self) -> bool | None:
        """Whether every fact is as promised; None when none was read."""
        return not self.differences if self.facts else None

    @property
    def differences(self) -> tuple[Fact, ...]:
        """The facts that are not as promised."""
        return tuple(fact for fact in self.facts if fact.failed)


def names(home: Path) -> tuple[str, ...]:
    """Every sandbox of this home: recorded, or only with a VM left over from one."""
    vms = {*records.vm_names(home), *traces.lost(home)}
    running = {records.sandbox_of(vm) for vm in vms}
    return tuple(sorted(running | set(records.sandbox_names(home))))


def observe(home: Path, name: str, *, read_back: bool = True) -> Observation:
    """Look at one sandbox. With `read_back` a running VMM's confinement is read and judged."""
    record = records.sandbox_record(home, name)
    standing: VmRecord | None = None
    strays = []
    pool: list[VmRecord] = []
    for vm in records.vm_records(home, name):
        if vm.kind == STANDING:
            standing = vm
        elif vm.kind == ONCE and not identity.runs(vm.owner):
            strays.append(vm)
        elif vm.kind == WARM:
            (strays if warming.is_left(vm) else pool).append(vm)
    running = standing is not None and identity.runs(standing.identity)
    facts: tuple[Fact, ...] = ()
    if running and read_back and standing is not None:
        facts = read_facts(home, standing)
        if any(fact.failed for fact in facts) and not identity.runs(standing.identity):
            # It ended while it was read: that is what differs, not how it was confined.
            running, facts = False, ()
    built = record is not None and snapshots.exists(home, record.spec)
    lost = {vm for vm in traces.lost(home) if records.sandbox_of(vm) == name}
    broken = tuple(sorted({*records.broken_vms(home, name), *lost}))
    drifts = drift.confinement_drifts(home, name)
    return Observation(
        name,
        record,
        standing,
        running,
        built,
        tuple(strays),
        facts,
        broken,
        drifts,
        disk.size_of(disk_of(home, name)),
        tuple(_waiting(home, vm, read_back=read_back) for vm in pool),
        warming.trouble(home, name),
        freezing.frozen(home, standing) if running and standing is not None else None,
        contact.stopped_vmm(home, standing) if running and standing is not None else None,
    )


def _waiting(home: Path, vm: VmRecord, *, read_back: bool) -> Waiting:
    if warming.is_outdated(home, vm):
        return Waiting(vm, "what it was made of has changed")
    # Not before it is ready: whoever gets it ready reads it back first.
    facts = read_facts(home, vm) if read_back and vm.ready else ()
    failed = tuple(fact for fact in facts if fact.failed)
    if failed and identity.runs(vm.identity):
        return Waiting(vm, f"confinement differs: {drift.said(failed)}", failed)
    return Waiting(vm)


def read_facts(home: Path, vm: VmRecord) -> tuple[Fact, ...]:
    """Read the VMM of a running VM, all threads and its whole cgroup, and judge what was read."""
    # Not at the top: `run` comes by here and imports these while its VMM starts.
    from reconciler.confinement.facts import Fact, Verdict
    from reconciler.confinement.promises import PROMISES
    from reconciler.engine import rereading

    if vm.identity is None:
        return ()
    try:
        policy = records.policy_of(home, vm)
        return rereading.judge_again(home, vm, policy)
    except (OSError, files.BrokenFile) as error:
        # A finding like others: the VM stays within every command's reach.
        why = f"what was noted of its launch cannot be read: {error}"
        return tuple(Fact(p.id, p.sentence, why, Verdict.UNREADABLE) for p in PROMISES)
