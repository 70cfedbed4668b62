"""The pool of a sandbox: filling it with waiting VMs, and taking them away."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from reconciler.boxfile.problems import printable
from reconciler.data import disk
from reconciler.engine import (
    accelerator,
    commands,
    journal,
    launching,
    records,
    slots,
    traces,
    warm,
)
from reconciler.engine.contact import Contact, contact_of
from reconciler.engine.home import sandbox_directory
from reconciler.engine.parts import Progress, found_parts
from reconciler.engine.records import WARM, VmRecord
from reconciler.engine.spec import Spec
from reconciler.errors import BoxError, Busy, as_box_error
from reconciler.guest import channel, protocol
from reconciler.linux import files, identity
from reconciler.vmm import control
from reconciler.vmm.qmp import Qmp

_CONTROL_SECONDS = 10.0
_WARMUP_SECONDS = 600
"""For all lines of `warmup`, where the Boxfile has no `timeout_seconds`."""
_SAID_BYTES = 2000
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 10.0, 600.0
_TROUBLE = "warm.json"
_PASS_SECONDS = 30.0


class WarmupFailed(BoxError):
    """A line of `warmup` did not succeed, so the VM was not kept."""


def members(home: Path, name: str) -> tuple[VmRecord, ...]:
    """The VMs that wait for a command of sandbox `name`, or are being got ready for that."""
    found = records.vm_records(home, name)
    return tuple(vm for vm in found if vm.kind == WARM and not is_left(vm))


def is_left(vm: VmRecord) -> bool:
    """Whether a waiting VM, or who was getting it ready, has ended."""
    return not identity.runs(vm.identity if vm.ready else vm.owner)


def is_outdated(home: Path, vm: VmRecord) -> bool:
    """Whether a VM for the same declaration would be made of something else by now."""
    if not vm.ready:
        return False
    try:
        parts = found_parts(home, vm.spec)
    except BoxError:
        return False  # it is gone from this host: nothing can take the VM's place
    if parts is None:
        return True
    machine = parts.machine(vm.spec, vm.accelerator, accelerator.tsc_khz(home))
    return parts.snapshot_key(machine) != vm.snapshot


def fill(home: Path, spec: Spec, progress: Progress, *, wait_seconds: float = 0) -> None:
    """Start waiting VMs until there are as many as declared, unless somebody else stays at it.

    A failure is not raised: `trouble` tells of it, and it keeps the next try waiting.
    """
    with warm.filling(home, spec.name, wait_seconds=wait_seconds) as alone:
        if alone is not None:
            fill_alone(home, spec, progress)


def fill_alone(home: Path, spec: Spec, progress: Progress) -> None:
    """Do what `fill` does, for a caller that has `warm.filling`."""
    try:
        _fill(home, spec, progress)
    except (BoxError, OSError) as error:
        if not _is_still_wanted(home, spec):
            return  # whoever brought the sandbox down has ended it under us
        known = as_box_error(error)
        progress(f"no VM could be got ready to wait: {known.brief}")
        with contextlib.suppress(OSError):
            _note(home, spec, known)


def _fill(home: Path, spec: Spec, progress: Progress) -> None:
    for vm in records.vm_records(home, spec.name):
        if vm.kind == WARM and is_left(vm):
            traces.discard(home, vm)
    # Counted, not until it is full: VMs that end as fast as they come are no endless work.
    for _ in range(spec.warm):
        if len(members(home, spec.name)) >= spec.warm or not _is_wanted(home, spec):
            break
        progress("getting a VM ready to wait")
        vm = _start(home, spec, progress)
        if not _is_still_wanted(home, spec):
            # Who brought the sandbox down may have come by while it had our lock.
            end(home, vm)
            return
    (sandbox_directory(home, spec.name) / _TROUBLE).unlink(missing_ok=True)


def _is_still_wanted(home: Path, spec: Spec) -> bool:
    """The same when no pass is under way, which ends the VMs first and then says so.

    Of a sandbox that was destroyed meanwhile, nothing that our VM took is left.
    """
    lock = home / "sandboxes" / spec.name / "lock"
    with contextlib.ExitStack() as stack:
        # A pass that takes longer than that starts a VM, and has said what is declared before.
        with contextlib.suppress(Busy, FileNotFoundError):
            stack.enter_context(files.locked(lock, timeout_seconds=_PASS_SECONDS))
            if records.sandbox_record(home, spec.name) is None:
                slots.release(home, spec.name)
        return _is_wanted(home, spec)


def _is_wanted(home: Path, spec: Spec) -> bool:
    """Whether VMs of this spec are still to wait: somebody may have brought the sandbox down."""
    record = records.sandbox_record(home, spec.name)
    if record is None or record.spec.state == "stopped" or not record.spec.warm:
        return False
    return warm.is_same(record.spec, spec)


def _start(home: Path, spec: Spec, progress: Progress) -> VmRecord:
    record = launching.start_vm(
        home, spec, kind=WARM, incarnation=0, with_data=False, progress=progress
    )
    try:
        _warm_up(contact_of(home, record), spec)
        with warm.locked(home, record.vm):
            with control.connected(record.directory(home), timeout_seconds=_CONTROL_SECONDS) as qmp:
                token = _rehearse(home, record, qmp)
                qmp.execute("stop")
            warm.note_start(record.directory(home))
            ready = replace(record, ready=True, owner=None, token=token.hex())
            records.keep_vm(home, ready)
    except BaseException:
        traces.discard(home, record)
        raise
    journal.record(home, spec.name, "Normal", "Warmed", f"VM {record.vm} waits for a command")
    return ready


def _rehearse(home: Path, record: VmRecord, qmp: Qmp) -> bytes:
    """Have a disk of nobody's mounted and unmounted; the VM's new token.

    Emulated, that takes a twentieth the second time, which is when the real one is mounted.
    """
    blank = record.directory(home) / "blank.img"
    disk.ensure_disk(blank, record.spec.data_bytes)
    with disk.opened(blank) as fd:
        blank.unlink()
        control.attach_data(qmp, fd)
        token = os.urandom(protocol.TOKEN_SIZE)
        warm.claim(home, contact_of(home, record), token, rehearse_data=True)
        control.detach_data(qmp, record.spec.data_bytes)
    return token


def _warm_up(vm: Contact, spec: Spec) -> None:
    deadline = time.monotonic() + (spec.timeout_seconds or _WARMUP_SECONDS)
    for number, line in enumerate(spec.warmup, 1):
        left_ms = max(1, round((deadline - time.monotonic()) * 1000))
        end, said = _shell(vm, line, left_ms)
        if end.timed_out or protocol.exit_status(end) != 0:
            how = "took too long" if end.timed_out else f"exited {protocol.exit_status(end)}"
            raise WarmupFailed(
                f"Line {number} of `warmup` {how}.",
                details="\n".join(map(printable, said.splitlines())) or None,
                hint=f"try it: box run --no-data {spec.name} -- sh -c 'LINE'",
            )
    # Emulated, the first command costs ten times the second one: so no user's is the first.
    _shell(vm, ":", round(_CONTROL_SECONDS * 1000))


def _shell(vm: Contact, line: str, timeout_ms: int) -> tuple[protocol.Exit, str]:
    """Run a line as a user's command; how it ended, and the end of what it said."""
    said = bytearray()

    def listen(data: bytes) -> None:
        said.extend(data)
        del said[:-_SAID_BYTES]

    request = commands.request(vm, ["/bin/sh", "-c", line], timeout_ms=timeout_ms)
    with channel.claim_port(vm.directory) as sock, channel.Session(sock, vm.token) as session:
        end = session.carry_out(request, stdin=None, stdout=listen, stderr=listen)
    return end, said.decode(errors="replace")


def end(home: Path, vm: VmRecord) -> None:
    """Take a waiting VM away, unless somebody takes it for a command just then."""
    try:
        with warm.locked(home, vm.vm):
            now = records.vm_record(home, vm.vm)
            if now is not None and now.kind == WARM:
                traces.discard(home, now)
    except FileNotFoundError:
        # It has no directory: there is next to nothing of it, or nothing at all.
        traces.discard(home, vm)
    except Busy:
        return


@dataclass(frozen=True)
class Trouble:
    """Why no VM is got ready for a spec, by its digest, until a Unix time."""

    spec: str
    message: str
    wait_seconds: float
    not_before: float


def trouble(home: Path, name: str) -> Trouble | None:
    """What keeps VMs from being got ready for now; None when it may be tried."""
    noted = _noted(home, name)
    # A clock that jumped back makes nobody wait longer than was meant.
    holds = noted is not None and 0 < noted.not_before - time.time() <= noted.wait_seconds
    return noted if holds else None


def _note(home: Path, spec: Spec, error: BoxError) -> None:
    before = _noted(home, spec.name)
    wait = _FIRST_WAIT_SECONDS
    if before is not None and before.spec == spec.digest:
        wait = min(2 * before.wait_seconds, _LONGEST_WAIT_SECONDS)
    noted = Trouble(spec.digest, str(error), wait, time.time() + wait)
    files.write_json(sandbox_directory(home, spec.name) / _TROUBLE, asdict(noted))
    with contextlib.suppress(BoxError):
        journal.record(home, spec.name, "Warning", "WarmFailed", error.brief, details=error.details)


def _noted(home: Path, name: str) -> Trouble | None:
    try:
        value = files.read_json(home / "sandboxes" / name / _TROUBLE)
        wait, until = float(value["wait_seconds"]), float(value["not_before"])
        return Trouble(str(value["spec"]), str(value["message"]), wait, until)
    except (OSError, files.BrokenFile, KeyError, TypeError, ValueError):
        return None
