"""What is written down of sandboxes and VMs: never what to believe, only where to look.

A VM's record is written before its process is started, so that whatever a crash leaves behind can
be found by its cgroup's name and taken away.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reconciler.engine.home import sandbox_directory
from reconciler.engine.spec import Spec
from reconciler.linux import files
from reconciler.linux.identity import ProcessIdentity

STANDING = "up"
"""Kind of the VM that `state: running` keeps; named like its sandbox."""

ONCE = "run"
"""Kind of a VM made for one command."""


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
    """One VM. `identity` is None until its VMM is known to run; `owner` is a `run`'s command.

    `spec` is what it was started from, `snapshot` names its state before anybody claimed it.
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

    def directory(self, home: Path) -> Path:
        """Where its sockets are."""
        return home / "run" / self.vm

    def started(self, identity: ProcessIdentity) -> VmRecord:
        """The same with its VMM's process."""
        return replace(self, identity=identity)


def sandbox_record(home: Path, name: str) -> SandboxRecord | None:
    """The record of a sandbox, None when there is none. Raises BrokenFile."""
    path = home / "sandboxes" / name / "record.json"
    try:
        value = files.read_json(path)
    except FileNotFoundError:
        return None
    with _broken(path):
        return SandboxRecord(
            name=str(value["name"]),
            spec=Spec.from_json(value["spec"]),
            source=value["source"],
            source_stamp=str(value["source_stamp"]),
            folder=value["folder"],
            incarnation=int(value["incarnation"]),
        )


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
    try:
        value = files.read_json(path)
    except FileNotFoundError:
        return None
    with _broken(path):
        return VmRecord(
            **{
                **value,
                "spec": Spec.from_json(value["spec"]),
                "image_env": tuple(value["image_env"]),
                "identity": _identity(value["identity"]),
                "owner": _identity(value["owner"]),
            }
        )


def keep_vm(home: Path, record: VmRecord) -> None:
    """Write a VM's record: 0600, because it holds the token."""
    value: dict[str, Any] = {
        **record.__dict__,
        "spec": record.spec.to_json(),
        "identity": record.identity and record.identity.to_dict(),
        "owner": record.owner and record.owner.to_dict(),
    }
    files.write_json(home / "run" / f"{record.vm}.json", value)


def forget_vm(home: Path, record: VmRecord) -> None:
    """Take away a VM's sockets, then its record: what a crash leaves is found again."""
    import shutil

    shutil.rmtree(record.directory(home), ignore_errors=True)
    (home / "run" / f"{record.vm}.json").unlink(missing_ok=True)


def vm_records(home: Path, sandbox: str | None = None) -> Iterator[VmRecord]:
    """All VMs' records, or those of one sandbox; one that vanishes meanwhile is passed over."""
    for path in sorted((home / "run").glob("*.json")):
        vm = path.name.removesuffix(".json")
        if sandbox is None or vm == sandbox or vm.startswith(f"{sandbox}."):
            record = vm_record(home, vm)
            if record is not None and sandbox in (None, record.sandbox):
                yield record


def _identity(value: dict[str, Any] | None) -> ProcessIdentity | None:
    return None if value is None else ProcessIdentity.from_dict(value)


@contextlib.contextmanager
def _broken(path: Path) -> Iterator[None]:
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise files.BrokenFile(
            f"{path} is not a record of this version of box.",
            hint=f"move it away, then `box sync`: mv {path} {path}.broken",
        ) from error
