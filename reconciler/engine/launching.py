"""From a spec to a running, proven, confined VM: restored from its snapshot, or booted."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler import errors
from reconciler.backends import jail, qemu
from reconciler.backends.qemu import Launch, Vm, VmmFailed
from reconciler.data import disk
from reconciler.engine import (
    accelerator,
    admission,
    contact,
    holding,
    journal,
    proof,
    records,
    slots,
    snapshots,
    space,
    traces,
    turns,
    warm,
)
from reconciler.engine.configuration import configuration
from reconciler.engine.home import disk_of, sandbox_directory
from reconciler.engine.parts import Parts, Progress, current_fingerprint, ensure_parts
from reconciler.engine.records import STANDING, WARM, VmRecord
from reconciler.engine.spec import Spec
from reconciler.errors import BoxError, Refused
from reconciler.guest import protocol
from reconciler.linux import files, identity

if TYPE_CHECKING:
    from reconciler.confinement.facts import Fact

_KVM_SECONDS = 10.0
_BOOT_SECONDS = 120.0
_STATE_SECONDS = 120.0
_READY_SECONDS = 30.0


class NotConfined(errors.NotConfined):
    """The VMM is not held to what the sandbox was promised; it was ended."""

    def __init__(self, facts: tuple[Fact, ...]) -> None:
        failed = [fact for fact in facts if fact.failed]
        lines = [f"{f.promise}: want {f.want}, have {f.have} ({f.verdict})" for f in failed]
        super().__init__(
            "The VMM is not confined as promised, so nothing was run in it.",
            details="\n".join(lines),
        )
        self.facts = facts


@dataclass(frozen=True)
class _Start:
    home: Path
    spec: Spec
    parts: Parts
    record: VmRecord
    with_data: bool
    progress: Progress

    @property
    def disk(self) -> Path:
        return disk_of(self.home, self.spec.name)


def start_vm(
    home: Path,
    spec: Spec,
    *,
    kind: str,
    incarnation: int,
    with_data: bool = True,
    vm: str | None = None,
    progress: Progress,
) -> VmRecord:
    """Bring up a VM of `spec` and return its record, written, with token and identity.

    Booted once, from then on restored. `vm` is the name of one for a command, NAME.RANDOM, where
    the caller has to know it beforehand. Raises BoxError subclasses; whatever is raised,
    KeyboardInterrupt too, nothing of the VM is left.
    """
    parts = ensure_parts(home, spec, progress)
    admission.check_memory(home, spec.ram_mib)
    if with_data:
        space.check(home)
    sandbox_directory(home, spec.name)
    disk.ensure_disk(disk_of(home, spec.name), spec.data_bytes)
    record = _new_record(home, spec, parts, kind, incarnation)
    record = replace(record, with_data=with_data)
    if vm is not None:
        record = replace(record, vm=vm, group=traces.group_of(home, vm))
    start = _Start(home, spec, parts, record, with_data, progress)
    with disk.opened(start.disk) as fd:
        if with_data:
            _check_free(start, fd)
        if kind == STANDING:
            # Its name is always the same: nothing that lost its record may be in its place.
            traces.discard(home, record)
        try:
            # Written first: whatever happens from here on can be found and taken away by its name.
            records.keep_vm(home, record)
            record.directory(home).mkdir(mode=0o700)
            with turns.turn(home, progress):
                return _bring_up(start, fd)
        except BaseException:
            traces.discard(home, record)
            raise


def _new_record(home: Path, spec: Spec, parts: Parts, kind: str, incarnation: int) -> VmRecord:
    vm = spec.name if kind == STANDING else f"{spec.name}.{secrets.token_hex(4)}"
    return VmRecord(
        vm=vm,
        sandbox=spec.name,
        kind=kind,
        incarnation=incarnation,
        group=traces.group_of(home, vm),
        spec=spec,
        token=secrets.token_hex(protocol.TOKEN_SIZE),
        owner=None if kind == STANDING else identity.identify(os.getpid()),
        fingerprint=parts.fingerprint,
        image_env=parts.image.config.env,
        working_dir=parts.image.config.working_dir,
        user=parts.image.config.user,
        started_at=journal.now(),
    )


def _bring_up(start: _Start, disk_fd: int) -> VmRecord:
    chosen = accelerator.remembered(start.home, start.spec.isolation)
    if chosen is not None:
        return _bring_up_on(start, chosen, disk_fd)
    tried = _try_kvm(start, disk_fd)
    if isinstance(tried, VmRecord):
        return tried
    record = _bring_up_on(start, accelerator.EMULATION, disk_fd)
    # Only now: what broke the trial and this start alike was not KVM.
    accelerator.remember(start.home, start.spec.isolation, accelerator.EMULATION, tried)
    return record


def _bring_up_on(start: _Start, chosen: str, disk_fd: int) -> VmRecord:
    launch = _launch(start, chosen)
    key = start.parts.snapshot_key(launch.machine)
    proven = proof.proof_of(start.home, start.spec.backend, start.parts.fingerprint)
    if proven:
        try:
            with snapshots.opened(start.home, key) as state:
                if state is not None:
                    return _restored(start, launch, key, state, disk_fd)
        except snapshots.WrongSnapshot as error:
            _tell_wrong(start, error)
            _clean_directory(start)
    return _booted(start, launch, key, disk_fd, _BOOT_SECONDS)


def _tell_wrong(start: _Start, error: snapshots.WrongSnapshot) -> None:
    start.progress(f"{error.brief} It is put aside; booting afresh")
    # A full disk keeps nobody from a VM.
    with contextlib.suppress(OSError, BoxError):
        name = start.spec.name
        reason = "SnapshotWrong"
        journal.record(
            start.home, name, "Warning", reason, f"{error.brief} Put aside.", details=error.details
        )


def _try_kvm(start: _Start, disk_fd: int) -> VmRecord | str:
    """Boot on KVM: a device that opens may still run nothing. The VM, or why there is none."""
    start.progress("trying KVM")
    launch = _launch(start, accelerator.KVM)
    key = start.parts.snapshot_key(launch.machine)
    isolation = start.spec.isolation
    try:
        record = _booted(start, launch, key, disk_fd, _KVM_SECONDS)
    except (VmmFailed, jail.JailFailed) as error:
        why = (error.details or error.brief).splitlines()[0][:200]
        start.progress(f"KVM does not work here ({why}); using software emulation")
        _clean_directory(start)
        return why
    accelerator.remember(start.home, isolation, accelerator.KVM, "a guest booted on it")
    return record


def _clean_directory(start: _Start) -> None:
    import shutil

    directory = start.record.directory(start.home)
    shutil.rmtree(directory)
    directory.mkdir(mode=0o700)


def _launch(start: _Start, chosen: str) -> Launch:
    strict = start.spec.isolation == "strict"
    return configuration(
        start.home,
        start.spec,
        start.parts,
        vm=start.record.vm,
        chosen=chosen,
        slot=slots.allocate(start.home, start.spec.name) if strict else None,
    )


def _restored(start: _Start, launch: Launch, key: str, state: int, disk_fd: int) -> VmRecord:
    with _starting(start, launch, incoming=True) as (vm, who):
        try:
            vm.restore(state, timeout_seconds=_STATE_SECONDS)
        except BoxError as error:
            raise _no_vm_of_it(error) from error
        _attach(start, vm, disk_fd)
        vm.resume()
        try:
            vm.ready(_READY_SECONDS)
        except BoxError as error:
            # Whole as it is, it may be that of a guest that was dead already.
            raise _no_vm_of_it(error) from error
        # Another sandbox of the same machine may have made it.
        if snapshots.remembered(start.home, start.spec) != key:
            snapshots.remember(start.home, start.spec, key)
        return _hand_over(start, launch, key, vm, who)


def _no_vm_of_it(error: BoxError) -> snapshots.WrongSnapshot:
    return snapshots.WrongSnapshot("No VM comes of the snapshot.", details=str(error))


def _booted(start: _Start, launch: Launch, key: str, disk_fd: int, seconds: float) -> VmRecord:
    start.progress("booting" + ("" if launch.machine.accelerator == "kvm" else " (emulated)"))
    with _starting(start, launch, incoming=False) as (vm, who):
        ready = vm.ready(seconds)
        proof.prove(start.home, start.spec.backend, start.parts, ready)
        if admission.room_for_snapshot(start.home, start.spec.ram_mib):
            start.progress("taking a snapshot")

            def write(target: int) -> None:
                vm.save(target, timeout_seconds=_STATE_SECONDS)

            snapshots.keep(start.home, key, launch.machine, write)
            snapshots.remember(start.home, start.spec, key)
            _attach(start, vm, disk_fd)
            vm.resume()
        else:
            start.progress("no room for a snapshot: the next start boots again")
            _attach(start, vm, disk_fd)
        return _hand_over(start, launch, key, vm, who)


@contextlib.contextmanager
def _starting(
    start: _Start, launch: Launch, *, incoming: bool
) -> Iterator[tuple[Vm, identity.ProcessIdentity]]:
    def meanwhile() -> None:
        policy = launch.policy().to_json()
        files.write_json(launch.directory / "policy.json", policy, durable=False)
        contact.note_boundary(launch.directory, start.parts.boundary)
        if start.record.kind == WARM:
            warm.note_sources(launch.directory, start.parts.sources(start.home, start.spec.base))
        _load_read_back()

    with qemu.start(launch, incoming=incoming, meanwhile=meanwhile) as started:
        yield started


def _load_read_back() -> None:
    """Import what reads the VMM back: for nothing, while the host's other CPU starts the jail."""
    from reconciler.engine import rereading  # noqa: F401
    from reconciler.linux import tracing  # noqa: F401


def _attach(start: _Start, vm: Vm, disk_fd: int) -> None:
    if start.with_data:
        # Again: another start of this sandbox may have been faster.
        _check_free(start, disk_fd)
        try:
            vm.attach(disk_fd)
        except BoxError:
            # QEMU's own look is the one that counts: say it the same way.
            _check_free(start, disk_fd)
            raise


def _check_free(start: _Start, disk_fd: int) -> None:
    try:
        disk.check_free(disk_fd, start.disk)
    except disk.DiskHeld as error:
        raise holding.data_held(start.home, start.spec.name, start.record.vm) from error


def _hand_over(
    start: _Start, launch: Launch, key: str, vm: Vm, who: identity.ProcessIdentity
) -> VmRecord:
    """Read the VMM back and only then give it a token, fresh randomness, the time and /data."""
    from reconciler.engine import rereading

    facts = rereading.judge_start(
        start.home, launch.directory, start.record.vm, who, launch.policy()
    )
    if any(fact.failed for fact in facts):
        raise NotConfined(facts)
    record = replace(
        start.record,
        identity=who,
        accelerator=launch.machine.accelerator,
        snapshot=key,
    )
    token = bytes.fromhex(record.token)
    vm.claim(warm.fresh_claim(start.home, start.spec.name, token, mount_data=start.with_data))
    # With its process only now: killed before this line, it counts as half-started, and is ended.
    records.keep_vm(start.home, record)
    return record


def check_proof(home: Path, record: VmRecord) -> None:
    """See that what a running VM rests on is still what was proven. Raises Refused.

    Files that were upgraded under it leave the running VM as it is, and the proof without a base.
    """
    if current_fingerprint(home, record.spec.backend) != record.fingerprint:
        raise Refused(
            f"{record.sandbox} runs on a VMM, kernel or runtime that has changed since.",
            details="What was proven of its kernel boundary no longer describes this host.",
            hint=f"start it again, which proves it again: box down {record.sandbox} && "
            f"box up {record.sandbox}",
        )
