"""Taking a waiting VM out of the pool, with nothing loaded but what that takes.

A waiting VM is paused, has no disk and was restored, read back and warmed up for its sandbox as
that was declared then: one of another declaration, or of files that have changed, is never taken.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from reconciler.data import disk
from reconciler.engine import contact
from reconciler.engine.contact import Contact
from reconciler.engine.home import disk_of, machine_id, sandbox_directory
from reconciler.engine.stamp import stamp_of
from reconciler.errors import BoxError, Busy
from reconciler.guest import channel, protocol
from reconciler.linux import files, identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from reconciler.engine.spec import Spec

_SOURCES = "sources.json"
_LOCK = "taking.lock"
_CONTROL_SECONDS = 5.0
_WARM, _ONCE = "warm", "run"  # kinds of records, which costs more to load than all of this

# What may differ between a spec and the one that a waiting VM was made for.
_NOT_THE_VMS = ("state", "warm")


def _unnoted(_vm: str, _token: str) -> None:
    pass


def take(
    home: Path, name: str, *, with_data: bool, noting: Callable[[str, str], object] = _unnoted
) -> Contact | None:
    """Take a waiting VM of a sandbox for a command of ours; None when there is none.

    It is ours alone, has a new token, fresh randomness and the time, and /data if asked for. From
    the moment it is taken its record names us: whoever finds it without us takes it away.
    `noting` is told its name and its new token right before that. Raises DataHeld when another VM
    has /data, Frozen when that is frozen, NoSpace when the host has no room for what it may write.
    """
    wanted = _declared(home, name)
    if wanted is None or not wanted.get("warm"):
        return None
    vms = [path.name.removesuffix(".json") for path in (home / "run").glob(f"{name}.*.json")]
    for vm in vms:
        _reap(home, vm)
    if with_data and vms:
        from reconciler.engine import space

        space.check(home)
    for vm in sorted(vms):
        if with_data:
            _check_data(home, name)
        taken = _take(home, vm, wanted, noting, with_data=with_data)
        if taken is not None:
            return taken
    return None


def note_sources(directory: Path, found: Mapping[str, str]) -> None:
    """Note in a VM's directory the stamps of all that another one would be made of now."""
    value = {"kernel": _own_kernel(), "files": dict(found)}
    files.write_json(directory / _SOURCES, value, durable=False)


def note_start(directory: Path) -> None:
    """Note besides the stamp of what was noted at the VM's start, which it is compared with."""
    value = files.read_json(directory / _SOURCES)
    value["files"] |= contact.stamps([directory / contact.START])
    files.write_json(directory / _SOURCES, value, durable=False)


def _own_kernel() -> str:
    return os.environ.get("BOX_KERNEL", "")


def is_same(one: Spec, other: Spec) -> bool:
    """Whether a VM that was made for one of these declarations is one for the other too."""
    return _same(one.to_json(), other.to_json())


def locked(home: Path, vm: str) -> Any:  # noqa: ANN401 - a context manager of a descriptor
    """Held while a VM goes from one hand to another. Raises Busy, FileNotFoundError."""
    return files.locked(home / "run" / vm / _LOCK, timeout_seconds=0)


@contextlib.contextmanager
def filling(home: Path, name: str, *, wait_seconds: float = 0) -> Iterator[int | None]:
    """Be the only one that fills the pool of a sandbox, by an open file; None when another is."""
    with contextlib.ExitStack() as stack:
        lock = sandbox_directory(home, name) / "warm.lock"
        fd = None
        with contextlib.suppress(Busy):
            fd = stack.enter_context(files.locked(lock, timeout_seconds=wait_seconds))
        yield fd


def _declared(home: Path, name: str) -> dict[str, Any] | None:
    """The spec in force of a sandbox, as its record has it; None when only a full look can tell."""
    try:
        record = files.read_json(home / "sandboxes" / name / "record.json")
        source = record["source"]
        if source is not None and str(stamp_of(Path(source).stat())) != record["source_stamp"]:
            return None
        return cast("dict[str, Any]", dict(record["spec"]))
    except (OSError, files.BrokenFile, KeyError, TypeError, ValueError):
        return None


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    def essence(value: dict[str, Any]) -> dict[str, Any]:
        return {key: each for key, each in value.items() if key not in _NOT_THE_VMS}

    return essence(one) == essence(other)


def _reap(home: Path, vm: str) -> None:
    """Take away the VM of a command that was killed before it could: it may have /data."""
    try:
        value = files.read_json(home / "run" / f"{vm}.json")
        if value["kind"] != _ONCE or identity.runs(_process(value["owner"])):
            return
    except (OSError, files.BrokenFile, AttributeError, KeyError, TypeError, ValueError):
        return
    from reconciler.engine import traces

    traces.discard_named(home, vm)


def _process(value: dict[str, Any] | None) -> identity.ProcessIdentity | None:
    return None if value is None else identity.ProcessIdentity.from_dict(value)


def _take(
    home: Path,
    vm: str,
    wanted: dict[str, Any],
    noting: Callable[[str, str], object],
    *,
    with_data: bool,
) -> Contact | None:
    if _waiting(home, vm, wanted) is None:
        return None
    try:
        with locked(home, vm):
            # Again, now that nobody else can take it, or take it away.
            value = _waiting(home, vm, wanted)
            if value is None:
                return None
            old = bytes.fromhex(value["token"])
            value |= _ours(with_data)
            noting(vm, value["token"])
            files.write_json(home / "run" / f"{vm}.json", value, durable=False)
    except (Busy, FileNotFoundError):
        return None
    taken = contact.read(home, vm, value)
    try:
        _hand_over(home, taken, old, with_data=with_data)
    except (OSError, BoxError):
        # Its guest may have died waiting, or another VM got /data first: whatever it is, the VM
        # has our name on it now, and is nobody else's any more.
        from reconciler.engine import traces

        traces.discard_named(home, vm)
        return None
    return taken


def _waiting(home: Path, vm: str, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """The record of a VM that waits for a command of this very declaration."""
    try:
        value = files.read_json(home / "run" / f"{vm}.json")
        if value["kind"] != _WARM or not value["ready"] or not _same(value["spec"], wanted):
            return None
        who = _process(value["identity"])
        sources = files.read_json(home / "run" / vm / _SOURCES)
        fresh = sources["kernel"] == _own_kernel() and contact.same(sources["files"])
    except (OSError, files.BrokenFile, AttributeError, KeyError, TypeError, ValueError):
        return None
    return value if fresh and identity.runs(who) else None


def _ours(with_data: bool) -> dict[str, Any]:  # noqa: FBT001
    me = identity.identify(os.getpid())
    return {
        "kind": _ONCE,
        "owner": me and me.to_dict(),
        "token": os.urandom(protocol.TOKEN_SIZE).hex(),
        "with_data": with_data,
        "ready": False,
    }


def _hand_over(home: Path, taken: Contact, old_token: bytes, *, with_data: bool) -> None:
    from reconciler.vmm import control

    with control.connected(Path(taken.directory), timeout_seconds=_CONTROL_SECONDS) as qmp:
        if with_data:
            with disk.opened(disk_of(home, taken.sandbox)) as fd:
                control.attach_data(qmp, fd)
        qmp.execute("cont")
    claim(home, taken._replace(token=old_token), taken.token, mount_data=with_data)


def claim(
    home: Path,
    vm: Contact,
    new_token: bytes,
    *,
    mount_data: bool = False,
    rehearse_data: bool = False,
) -> None:
    """Give a VM that was claimed before another token, fresh randomness and the time."""
    with (
        channel.claim_port(vm.directory, timeout_seconds=_CONTROL_SECONDS) as sock,
        channel.Session(sock, vm.token, _CONTROL_SECONDS) as session,
    ):
        # Made here: the clock in it is that of this moment.
        session.claim(
            fresh_claim(
                home, vm.sandbox, new_token, mount_data=mount_data, rehearse_data=rehearse_data
            )
        )


def fresh_claim(
    home: Path,
    name: str,
    token: bytes,
    *,
    mount_data: bool = False,
    rehearse_data: bool = False,
) -> protocol.Claim:
    """What makes a VM one of sandbox `name` from this moment on: to be sent at once."""
    return protocol.Claim(
        token=token,
        entropy=os.urandom(protocol.ENTROPY_SIZE),
        realtime_ns=time.time_ns(),
        machine_id=machine_id(home, name),
        hostname=name,
        mount_data=mount_data,
        rehearse_data=rehearse_data,
    )


def _check_data(home: Path, name: str) -> None:
    path = disk_of(home, name)
    try:
        with disk.opened(path) as fd:
            disk.check_free(fd, path)
    except FileNotFoundError:
        return
    except disk.DiskHeld as error:
        from reconciler.engine import holding

        raise holding.data_held(home, name) from error
