"""One pass over one sandbox: observe, plan, apply."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from reconciler.engine import (
    collecting,
    drift,
    freezing,
    journal,
    launching,
    records,
    refilling,
    slots,
    space,
    telling,
    traces,
    warming,
)
from reconciler.engine.home import disk_of, sandbox_directory
from reconciler.engine.observe import Observation, observe
from reconciler.engine.outcome import Again, Done, GaveUp, Outcome
from reconciler.engine.parts import Progress, ensure_parts
from reconciler.engine.plan import Action, ActionKind, plan
from reconciler.engine.records import STANDING, SandboxRecord
from reconciler.engine.spec import Spec
from reconciler.engine.stopping import UNWRITTEN, stop_vm
from reconciler.errors import BoxError, NotFound, Refused, as_box_error
from reconciler.linux import files, identity

_RETRY_SECONDS = 10.0
_LOCK_SECONDS = 30.0


def run_pass(
    home: Path,
    name: str,
    spec: Spec | None,
    *,
    source: Path | None,
    folder: str | None,
    progress: Progress,
    fills_beside: bool = False,
) -> Outcome:
    """Make the sandbox `name` what `spec` says, as far as it is not so already.

    A sandbox's own failure is in the outcome and in the events, never raised. With `fills_beside`
    waiting VMs are got ready by another process, for a caller that has more to do with `name`.
    """
    outcome = _run_pass(home, name, spec, source, folder, progress)
    # Not under the sandbox's lock: `warmup` may take its time, and nothing else waits for it.
    if spec is not None and isinstance(outcome, Done) and _warms(outcome):
        if fills_beside:
            refilling.refill_beside(home, name)
        else:
            warming.fill(home, spec, progress)
    return outcome


def _warms(done: Done) -> bool:
    return any(action.kind is ActionKind.WARM for action in done.actions)


def _run_pass(
    home: Path,
    name: str,
    spec: Spec | None,
    source: Path | None,
    folder: str | None,
    progress: Progress,
) -> Outcome:
    with contextlib.ExitStack() as stack:
        try:
            lock = sandbox_directory(home, name) / "lock"
            stack.enter_context(files.locked(lock, timeout_seconds=_LOCK_SECONDS))
            stack.enter_context(_nothing_half_done(home, name))
            files.sweep(lock.parent)
            if spec is not None:
                _set_aside_broken(home, name)
            # Before it is ended too: it can write out then.
            space.let_go_on(home, name)
            seen = observe(home, name)
            recorded = _record_drift_if_possible(home, seen)
            actions = plan(spec, seen)
            work = _Work(home, name, spec, source, folder, progress)
            for action in actions:
                work.apply(action, seen)
            if not recorded:
                _record_drift(home, seen)
            if spec is not None:
                _own(home, name, source, folder)
            if actions:
                _collect(home, name)
        except (BoxError, OSError) as error:
            return _failed(home, name, error)
        return Done(actions)


def _collect(home: Path, name: str) -> None:
    """Take away the snapshots that what was just done has left without a use."""
    # It makes room, and nothing waits for it: the next pass that does something tries again.
    with contextlib.suppress(BoxError, OSError):
        gone = collecting.collect(home)
        if gone:
            many = f"{len(gone)} snapshot" + ("s" if len(gone) > 1 else "")
            message = f"{many} that no sandbox uses any more"
            journal.record(home, name, "Normal", "Collected", message, snapshots=list(gone))


def _own(home: Path, name: str, source: Path | None, folder: str | None) -> None:
    """Note where a sandbox is declared now: its file may have moved without changing."""
    record = records.sandbox_record(home, name)
    if record is None or source is None:
        return
    now = replace(record, source=str(source), source_stamp=records.stamp(source), folder=folder)
    if now != record:
        records.keep_sandbox(home, now)


def _set_aside_broken(home: Path, name: str) -> None:
    """Put a record that cannot be read out of the way: the declared spec makes a new one."""
    try:
        records.sandbox_record(home, name)
    except files.BrokenFile as error:
        path = home / "sandboxes" / name / "record.json"
        path.replace(path.with_name("record.json.broken"))
        journal.record(home, name, "Warning", "RecordBroken", error.brief, details=error.details)


def _record_drift_if_possible(home: Path, seen: Observation) -> bool:
    """Record what differs; on a full disk, which keeps no VM from being stopped, not yet."""
    try:
        _record_drift(home, seen)
    except OSError:
        return False
    return True


def _record_drift(home: Path, seen: Observation) -> None:
    if seen.vm is not None and not seen.running and seen.vm.kind == STANDING:
        drift.vanished(home, seen.vm)
    if seen.facts and seen.vm is not None:
        drift.compare(home, seen.vm, seen.facts)


def _failed(home: Path, name: str, error: BoxError | OSError) -> Outcome:
    known = as_box_error(error)
    with contextlib.suppress(OSError, BoxError):
        journal.record(home, name, "Warning", "PassFailed", known.brief, details=known.details)
    # What is busy or missing may come: a slot is freed, an image pulled, a package installed.
    if isinstance(known, Refused):
        return GaveUp(known)
    return Again(_RETRY_SECONDS, known)


class _Work:
    """Applies the actions of one pass, under the sandbox's lock."""

    def __init__(
        self,
        home: Path,
        name: str,
        spec: Spec | None,
        source: Path | None,
        folder: str | None,
        progress: Progress,
    ) -> None:
        self._home = home
        self._name = name
        self._spec = spec
        self._source = source
        self._folder = folder
        self._progress = progress

    def apply(self, action: Action, seen: Observation) -> None:
        """Do one action and record it."""
        if action.kind is ActionKind.WARM:
            return  # after this pass, and told by whoever does it
        if action.kind is ActionKind.DRAIN:
            self._drain(seen, action.vm)
        elif action.kind is ActionKind.FREEZE:
            self._freeze(seen)
        else:
            self._act(action.kind, seen)
        telling.tell(self._home, action, seen)

    def _act(self, kind: ActionKind, seen: Observation) -> None:
        match kind:
            case ActionKind.REAP:
                for stray in seen.strays:
                    traces.discard(self._home, stray)
                for vm in seen.broken:
                    traces.discard_named(self._home, vm)
            case ActionKind.UPDATE:
                self._update(seen)
            case ActionKind.BUILD:
                self._build()
            case ActionKind.START:
                self._end_standing(seen)
                self._start()
            case ActionKind.STOP:
                self._end_standing(seen)
            case ActionKind.REPLACE:
                # What cannot be started, or is slow to build, does not stop what runs.
                ensure_parts(self._home, self._need_spec(), self._progress)
                self._end_standing(seen)
                self._start()
            case ActionKind.DESTROY:
                self._end_standing(seen)
                self._drain(seen, None)
                destroy_records(self._home, self._name)

    def _drain(self, seen: Observation, vm: str | None) -> None:
        """Take one waiting VM away, or all of them."""
        for each in seen.waiting:
            if vm in (None, each.vm.vm):
                warming.end(self._home, each.vm)

    def _update(self, seen: Observation) -> None:
        spec = self._need_spec()
        incarnation = seen.record.incarnation if seen.record else 0
        record = SandboxRecord(
            name=self._name,
            spec=spec,
            source=str(self._source) if self._source else None,
            source_stamp=records.stamp(self._source) if self._source else "",
            folder=self._folder,
            incarnation=incarnation,
        )
        records.keep_sandbox(self._home, record)
        # What a running VM can be given, it is given: the next command sees the new spec.
        stays = seen.running and spec.state == "running"
        if stays and seen.vm and seen.vm.spec.vm_digest == spec.vm_digest:
            records.keep_vm(self._home, replace(seen.vm, spec=spec))

    def _build(self) -> None:
        build(self._home, self._need_spec(), self._progress)

    def _start(self) -> None:
        start_standing(self._home, self._need_spec(), self._progress)

    def _end_standing(self, seen: Observation) -> None:
        if seen.vm is None:
            return
        if seen.running:
            self._progress("stopping")
            if not stop_vm(self._home, seen.vm) and seen.vm.with_data:
                self._progress(UNWRITTEN)
        else:
            traces.discard(self._home, seen.vm)

    def _freeze(self, seen: Observation) -> None:
        if seen.vm is not None:
            self._progress("freezing")
            freezing.freeze(self._home, seen.vm, seen.differences)

    def _need_spec(self) -> Spec:
        if self._spec is None:
            raise Refused(f"{self._name} is not declared.")
        return self._spec


def start_standing(home: Path, spec: Spec, progress: Progress) -> None:
    """Start the standing VM of a sandbox whose record exists; a new incarnation each time."""
    record = records.sandbox_record(home, spec.name)
    if record is None:
        raise NotFound(f"There is no sandbox {spec.name}.")
    record = replace(record, incarnation=record.incarnation + 1)
    records.keep_sandbox(home, record)
    progress("starting")
    vm = launching.start_vm(
        home, spec, kind=STANDING, incarnation=record.incarnation, progress=progress
    )
    drift.resolved(home, vm)


def build(home: Path, spec: Spec, progress: Progress) -> None:
    """Make all that a start needs: parts, proof and snapshot, by starting a VM and ending it."""
    with _nothing_half_done(home, spec.name):
        vm = launching.start_vm(
            home, spec, kind=records.ONCE, incarnation=0, with_data=False, progress=progress
        )
        traces.discard(home, vm)


def destroy(home: Path, name: str, *, with_data: bool, progress: Progress) -> None:
    """End all VMs of a sandbox and forget it; `with_data` deletes its /data for good."""
    directory = sandbox_directory(home, name)
    lock = files.locked(directory / "lock", timeout_seconds=_LOCK_SECONDS)
    with lock, _nothing_half_done(home, name):
        space.let_go_on(home, name)
        for vm in records.vm_records(home, name):
            progress(f"stopping {vm.vm}")
            stop_vm(home, vm)
        for broken in records.broken_vms(home, name):
            traces.discard_named(home, broken)
        destroy_records(home, name)
        if with_data:
            disk_of(home, name).unlink(missing_ok=True)
    journal.record(home, name, "Normal", "Destroyed", "by command", with_data=with_data)
    _collect(home, name)


@contextlib.contextmanager
def _nothing_half_done(home: Path, name: str) -> Iterator[None]:
    """Take away what an interrupt has left, under the sandbox's lock.

    Whatever starts or ends a VM does so itself, but the interrupt may have hit just that; only the
    first one raises, so this comes to its end.
    """
    try:
        yield
    except KeyboardInterrupt:
        me = identity.identify(os.getpid())
        for vm in records.vm_records(home, name):
            if vm.owner == me if vm.kind != STANDING else not identity.runs(vm.identity):
                traces.discard(home, vm)
        raise


def destroy_records(home: Path, name: str) -> None:
    """Forget a sandbox whose VMs are gone; its /data stays where it is. Twice is once."""
    directory = home / "sandboxes" / name
    slots.release(home, name)
    for file in (
        "built.json",
        "drift.json",
        "status.json",
        "backoff.json",
        "warm.json",
        "record.json",
    ):
        (directory / file).unlink(missing_ok=True)
