"""What the VMMs of one sandbox can touch: the configuration of each, and what was read of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reconciler.confinement import promises
from reconciler.confinement.facts import Fact, Verdict
from reconciler.confinement.policy import Policy
from reconciler.confinement.promises import Promise
from reconciler.data import disk
from reconciler.engine import (
    accelerator,
    boundary,
    freezing,
    journal,
    observe,
    parts,
    records,
    traces,
)
from reconciler.engine.boundary import Boundary
from reconciler.engine.configuration import next_start
from reconciler.engine.freezing import Frozen
from reconciler.engine.home import disk_of
from reconciler.engine.records import ONCE, STANDING, WARM, VmRecord
from reconciler.engine.spec import Spec
from reconciler.errors import BoxError, Refused
from reconciler.linux import files, identity

UP, DOWN, STARTING = "up", "down", "starting"
ROLES = {STANDING: "standing", ONCE: "command", WARM: "waiting"}


@dataclass(frozen=True)
class Checked:
    """One promise of one VMM. All else is None where there was none to be read.

    `want` is in the words of who judged it; what a VMM would be held to is in its policy.
    """

    promise: Promise
    want: str | None
    have: str | None
    verdict: Verdict | None

    @property
    def failed(self) -> bool:
        """Whether it must be answered."""
        return self.verdict in {Verdict.DIFFERS, Verdict.UNREADABLE}


@dataclass(frozen=True)
class VmReport:
    """One VM, which is `up`, `starting`, or (the standing one only) `down`.

    `policy` is what its launch was rendered from, as `source` has it; None when that is lost or is
    not to be read yet. `accelerator` is "" where it is not known, `emulated_because` says why there
    is no KVM. `data` is the disk of /data with its size, where it has one. `frozen` is what is
    noted of its freezing; None when it was not to be frozen.
    """

    vm: str
    kind: str
    state: str
    spec: Spec
    incarnation: int
    who: identity.ProcessIdentity | None
    started_at: str
    accelerator: str
    emulated_because: str
    source: str
    policy: Policy | None
    data: tuple[Path, int] | None
    boundary: Boundary | None
    frozen: Frozen | None
    facts: tuple[Checked, ...]

    @property
    def failed(self) -> tuple[Checked, ...]:
        """The promises that must be answered."""
        return tuple(each for each in self.facts if each.failed)


@dataclass(frozen=True)
class SecurityReport:
    """One sandbox at `read_at` (RFC 3339): its standing VM first, up or as it would be started.

    `lost` are VMs of which nothing can be told, because their records are broken or gone.
    """

    sandbox: str
    read_at: str
    vms: tuple[VmReport, ...]
    lost: tuple[str, ...]

    @property
    def verdict(self) -> Verdict | None:
        """The worst one of all; None when no VMM was read."""
        found = {each.verdict for vm in self.vms for each in vm.facts}
        found |= {vm.boundary.verdict for vm in self.vms if vm.boundary}
        found |= {Verdict.UNREADABLE} if self.lost else set()
        ranked = (Verdict.DIFFERS, Verdict.UNREADABLE, Verdict.SAME)
        return next((each for each in ranked if each in found), None)

    @property
    def failed(self) -> bool:
        """Whether anything is neither same nor not applicable."""
        return self.verdict in {Verdict.DIFFERS, Verdict.UNREADABLE}


def report_of(home: Path, name: str, declared: Callable[[], Spec]) -> SecurityReport:
    """Read all VMMs of a sandbox; where its standing VM is not up, say what would be started.

    `declared` gives the spec for that: a Boxfile that is broken by now hides no running VM. Raises
    its errors, Missing, and Refused where nothing runs and nothing is built.
    """
    read_at = journal.now()
    found = [each for vm in records.vm_records(home, name) for each in _present(home, vm)]
    lost = {vm for vm in traces.lost(home) if records.sandbox_of(vm) == name}
    lost |= set(records.broken_vms(home, name))
    if not any(each.kind == STANDING for each in found):
        try:
            found.append(_planned(home, declared()))
        except BoxError:
            if not found and not lost:
                raise
    order = (STANDING, ONCE, WARM)
    found.sort(key=lambda each: (order.index(each.kind), each.vm))
    return SecurityReport(name, read_at, tuple(found), tuple(sorted(lost)))


def _present(home: Path, vm: VmRecord) -> Iterator[VmReport]:
    """The report of a VM, none when it is not there (any more)."""
    starting = vm.identity is None or (vm.kind == WARM and not vm.ready)
    if starting:
        # Whoever starts it reads it back before anything of the user's runs in it.
        if vm.kind == STANDING or _runs(vm.owner):
            yield _report(home, vm, STARTING, None, ())
        return
    facts = _read(home, vm)
    if any(fact.failed for fact in facts) and not _runs(vm.identity):
        return  # it has ended, perhaps while it was read
    try:
        policy = records.policy_of(home, vm)
    except (OSError, files.BrokenFile):
        policy = None
    yield _report(home, vm, UP, policy, tuple(_checked(fact, vm.spec.backend) for fact in facts))


def _runs(who: identity.ProcessIdentity | None) -> bool:
    try:
        return identity.runs(who)
    except identity.HiddenProcess:
        return True  # it lives, and that it cannot be read is what the reading says


def _read(home: Path, vm: VmRecord) -> tuple[Fact, ...]:
    try:
        return observe.read_facts(home, vm)
    except (BoxError, OSError) as error:
        why = error.brief if isinstance(error, BoxError) else str(error)
        unread = Verdict.UNREADABLE
        return tuple(Fact(each.id, each.sentence, why, unread) for each in promises.PROMISES)


def _checked(fact: Fact, backend: str) -> Checked:
    promise = _promise(fact.promise)
    if backend not in promise.backends:
        have = f"not promised for {backend}"
        return Checked(promise, fact.want, have, Verdict.NOT_APPLICABLE)
    return Checked(promise, fact.want, fact.have, fact.verdict)


def _promise(promise_id: str) -> Promise:
    try:
        return promises.promise(promise_id)
    except KeyError:
        return Promise(promise_id, promise_id)


def _report(
    home: Path, vm: VmRecord, state: str, policy: Policy | None, facts: tuple[Checked, ...]
) -> VmReport:
    path = disk_of(home, vm.sandbox)
    size = disk.size_of(path) if vm.with_data else None
    return VmReport(
        vm=vm.vm,
        kind=vm.kind,
        state=state,
        spec=vm.spec,
        incarnation=vm.incarnation,
        who=vm.identity,
        started_at=vm.started_at,
        accelerator=vm.accelerator,
        emulated_because=_reason(home, vm.spec, vm.accelerator),
        source=str(vm.directory(home) / "policy.json"),
        policy=policy,
        data=None if size is None else (path, size),
        boundary=boundary.of_running(home, vm) if state == UP else None,
        frozen=freezing.frozen(home, vm) if state == UP else None,
        facts=facts,
    )


def _reason(home: Path, spec: Spec, chosen: str) -> str:
    return accelerator.reason(home, spec.isolation) if chosen == accelerator.EMULATION else ""


def _planned(home: Path, spec: Spec) -> VmReport:
    found = parts.found_parts(home, spec)
    launch = next_start(home, spec, found) if found else None
    if found is None or launch is None:
        raise Refused(
            f"Nothing is built for {spec.name} yet, so there is nothing to report on.",
            hint=f"box build {spec.name}",
        )
    facts = [Checked(each, None, None, None) for each in promises.PROMISES]
    chosen = accelerator.remembered(home, spec.isolation) or ""
    path = disk_of(home, spec.name)
    return VmReport(
        vm=spec.name,
        kind=STANDING,
        state=DOWN,
        spec=spec,
        incarnation=0,
        who=None,
        started_at="",
        accelerator=chosen,
        emulated_because=_reason(home, spec, chosen),
        source="what its next start would be given",
        policy=launch.policy(),
        data=(path, spec.data_bytes),
        boundary=boundary.of_next(home, spec.backend, found.fingerprint),
        frozen=None,
        facts=tuple(each for each in facts if spec.backend in each.promise.backends),
    )
