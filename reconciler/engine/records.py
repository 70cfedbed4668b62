"""What is written down of sandboxes and VMs: never what to believe, only where to look.

A VM's record is written before its process is started, so that whatever a crash leaves behind can
be found by its cgroup's name and taken away.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from reconciler.confinement.policy import Policy
from reconciler.engine.home import sandbox_directory
from reconciler.engine.spec import Spec
from reconciler.engine.stamp import stamp_of
from reconciler.guest import protocol
from reconciler.linux import files
from reconciler.linux.identity import ProcessIdentity

STANDING = "up"
"""Kind of the VM that `state: running` keeps; named like its sandbox."""

ONCE = "run"
"""Kind of a VM made for one command."""

WARM = "warm"
"""Kind of a VM that waits for such a command; it becomes one of kind ONCE when it is taken."""


@dataclass(frozen=True)
class SandboxRecord:
    """A sandbox that this home knows: `spec` is the last good one, whatever the file says now.

    `source` is the Boxfile's path, `source_stamp` its identity when it was read, `folder` the
    watched folder that owns it (None: it was made by a command).
    """

    name: str
    spec: Spec
    source: str | None
    source_stamp: str
    folder: str | None
    incarnation: int


@dataclass(frozen=True)
class VmRecord:
    """One VM. `identity` is None until its VMM is known to run; `owner` is a `run`'s command, or
    the process that gets a WARM one ready. `ready` says that it waits: it is paused.

    `spec` is what it was started from, `snapshot` names its state before anybody claimed it.
    `with_data` says whether it has, or is about to have, the sandbox's /data.
    `image_env` (NAME=VALUE), `working_dir` and `user` are what its image says of commands.
    """

    vm: str
    sandbox: str
    kind: str
    incarnation: int
    group: str
    spec: Spec
    token: str
    identity: ProcessIdentity | None = None
    owner: ProcessIdentity | None = None
    accelerator: str = ""
    fingerprint: str = ""
    snapshot: str = ""
    image_env: tuple[str, ...] = ()
    working_dir: str = ""
    user: str = ""
    started_at: str = ""
    with_data: bool = True
    ready: bool = False

    def directory(self, home: Path) -> Path:
        """Where its sockets are."""
        return home / "run" / self.vm

    def started(self, identity: ProcessIdentity) -> VmRecord:
        """The same with its VMM's process."""
        return replace(self, identity=identity)


def sandbox_record(home: Path, name: str) -> SandboxRecord | None:
    """The record of a sandbox, None when there is none. Raises BrokenFile."""
    path = home / "sandboxes" / name / "record.json"
    with _broken(path, f"move it away, then `box sync`: mv {path} {path}.broken"):
        value = _read(path)
        if value is None:
            return None
        spec = Spec.from_json(value["spec"])
        if not value["name"] == spec.name == name:
            raise ValueError(value["name"])
        return SandboxRecord(
            name=name,
            spec=spec,
            source=value["source"],
            source_stamp=str(value["source_stamp"]),
            folder=value["folder"],
            incarnation=int(value["incarnation"]),
        )


def stamp(source: Path) -> str:
    """The identity of a Boxfile's contents without reading them; "" when it cannot be told."""
    try:
        return str(stamp_of(source.stat()))
    except OSError:
        return ""


def keep_sandbox(home: Path, record: SandboxRecord) -> None:
    """Write a sandbox's record, whole or not at all."""
    value = {
        "name": record.name,
        "spec": record.spec.to_json(),
        "source": record.source,
        "source_stamp": record.source_stamp,
        "folder": record.folder,
        "incarnation": record.incarnation,
    }
    files.write_json(sandbox_directory(home, record.name) / "record.json", value)


def sandbox_names(home: Path) -> tuple[str, ...]:
    """All sandboxes with a record, sorted."""
    return tuple(sorted(p.parent.name for p in (home / "sandboxes").glob("*/record.json")))


def vm_record(home: Path, vm: str) -> VmRecord | None:
    """The record of a VM, None when there is none. Raises BrokenFile."""
    path = home / "run" / f"{vm}.json"
    with _broken(path, f"box down {sandbox_of(vm)}, which ends the VM by its name"):
        value = _read(path)
        if value is None:
            return None
        known = {field.name: value[field.name] for field in fields(VmRecord) if field.name in value}
        record = VmRecord(
            **{
                **known,
                "spec": Spec.from_json(value["spec"]),
                "image_env": tuple(value.get("image_env", ())),
                "identity": _identity(value.get("identity")),
                "owner": _identity(value.get("owner")),
            }
        )
        # These name what is killed and removed: a file that was copied names somebody else's.
        names = (record.vm, record.sandbox, record.group.partition("-")[2])
        if (
            names != (vm, sandbox_of(vm), vm)
            or len(bytes.fromhex(record.token)) != protocol.TOKEN_SIZE
        ):
            raise ValueError(names)
        return record


def keep_vm(home: Path, record: VmRecord) -> None:
    """Write a VM's record: 0600, because it holds the token."""
    value: dict[str, Any] = {
        **record.__dict__,
        "spec": record.spec.to_json(),
        "identity": record.identity and record.identity.to_dict(),
        "owner": record.owner and record.owner.to_dict(),
    }
    # No VM outlives the boot that it is of.
    files.write_json(home / "run" / f"{record.vm}.json", value, durable=False)


def forget_vm(home: Path, vm: str) -> None:
    """Take away a VM's sockets, then its record: what a crash leaves is found again."""
    import shutil

    shutil.rmtree(home / "run" / vm, ignore_errors=True)
    (home / "run" / f"{vm}.json").unlink(missing_ok=True)


def vm_names(home: Path, sandbox: str | None = None) -> tuple[str, ...]:
    """All VMs with a record, or those of one sandbox, whatever their records hold."""
    found = [path.name.removesuffix(".json") for path in (home / "run").glob("*.json")]
    return tuple(sorted(vm for vm in found if sandbox in (None, sandbox_of(vm))))


def sandbox_of(vm: str) -> str:
    """The sandbox that a VM's name says it belongs to: NAME, or NAME.RANDOM."""
    return vm.partition(".")[0]


def vm_records(home: Path, sandbox: str | None = None) -> Iterator[VmRecord]:
    """All VMs' records that can be read, or those of one sandbox.

    One that vanishes meanwhile is passed over, and so is a broken one: see `broken_vms`.
    """
    for vm in vm_names(home, sandbox):
        with contextlib.suppress(files.BrokenFile):
            record = vm_record(home, vm)
            if record is not None:
                yield record


def broken_vms(home: Path, sandbox: str) -> tuple[str, ...]:
    """The sandbox's VMs whose records cannot be read: there is nothing of them but a name."""
    broken = []
    for vm in vm_names(home, sandbox):
        try:
            vm_record(home, vm)
        except files.BrokenFile:
            broken.append(vm)
    return tuple(broken)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return files.read_json(path)
    except FileNotFoundError:
        return None


def policy_of(home: Path, record: VmRecord) -> Policy:
    """The policy that a running VM was launched under, as it was handed to the jail."""
    value = files.read_json(record.directory(home) / "policy.json")
    try:
        return Policy.from_json(value)
    except (AttributeError, KeyError, ValueError) as error:
        raise files.BrokenFile(f"The policy of {record.vm} cannot be read.") from error


def _identity(value: dict[str, Any] | None) -> ProcessIdentity | None:
    return None if value is None else ProcessIdentity.from_dict(value)


@contextlib.contextmanager
def _broken(path: Path, hint: str) -> Iterator[None]:
    try:
        yield
    except (files.BrokenFile, AttributeError, KeyError, TypeError, ValueError) as error:
        found = error.details if isinstance(error, files.BrokenFile) else None
        details = found or f"{type(error).__name__}: {error}"
        raise files.BrokenFile(
            f"{path} is not a record of this version of box.", details=details, hint=hint
        ) from error
