"""A running VM as a command needs it: read from its record alone, and with nothing else loaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.engine.stamp import stamp_of
from reconciler.errors import NotRunning
from reconciler.guest import protocol
from reconciler.linux import files, identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.engine.records import VmRecord

_BOUNDARY = "boundary.json"


class Contact(NamedTuple):
    """`directory` holds its ports. What follows `token` is what commands have by default.

    `env` is the image's, then the Boxfile's.
    """

    vm: str
    sandbox: str
    incarnation: int
    directory: Path
    token: bytes
    env: dict[str, str]
    timeout_seconds: int
    working_dir: str
    user: str


def running(home: Path, name: str) -> Contact:
    """The VM of a sandbox that is up, on a kernel boundary that is still the proven one.

    Raises NotRunning when it is not up, Refused without its proof, BrokenFile.
    """
    try:
        value = files.read_json(home / "run" / f"{name}.json")
        who = value["identity"] and identity.ProcessIdentity.from_dict(value["identity"])
        found = read(home, name, value)
    except FileNotFoundError:
        who = None
    except (files.BrokenFile, AttributeError, KeyError, TypeError, ValueError):
        from reconciler.engine import records

        # It says what is wrong with the record, and what to do about it.
        records.vm_record(home, name)
        raise
    if not identity.runs(who):
        raise NotRunning(f"{name} is not running.", hint=f"box up {name}")
    if not _same_boundary(found.directory):
        from reconciler.engine import launching, records

        record = records.vm_record(home, name)
        if record is not None:
            launching.check_proof(home, record)
    return found


def read(home: Path, vm: str, value: dict[str, Any]) -> Contact:
    """The VM `vm` as its record's JSON has it. Raises what a malformed one gives rise to."""
    token, sandbox = bytes.fromhex(value["token"]), vm.partition(".")[0]
    if (value["vm"], value["sandbox"], len(token)) != (vm, sandbox, protocol.TOKEN_SIZE):
        raise ValueError(vm)
    spec = value["spec"]
    image = (word.partition("=")[::2] for word in value["image_env"])
    return Contact(
        vm=vm,
        sandbox=sandbox,
        incarnation=int(value["incarnation"]),
        directory=home / "run" / vm,
        token=token,
        env={**dict(image), **dict(spec["env"])},
        timeout_seconds=int(spec["timeout_seconds"]),
        working_dir=str(value["working_dir"]),
        user=str(value["user"]),
    )


def contact_of(home: Path, record: VmRecord) -> Contact:
    """The same of a VM whose record was just made."""
    image = dict(word.partition("=")[::2] for word in record.image_env)
    return Contact(
        vm=record.vm,
        sandbox=record.sandbox,
        incarnation=record.incarnation,
        directory=record.directory(home),
        token=bytes.fromhex(record.token),
        env={**image, **dict(record.spec.env)},
        timeout_seconds=record.spec.timeout_seconds,
        working_dir=record.working_dir,
        user=record.user,
    )


def stamps(paths: Iterable[Path]) -> dict[str, str]:
    """What tells whether files are still the same ones, with the same contents. Raises OSError."""
    return {str(path): str(stamp_of(path.stat())) for path in paths}


def note_boundary(directory: Path, found: Mapping[str, str]) -> None:
    """Note in a VM's directory the stamps of what decides its kernel boundary."""
    files.write_json(directory / _BOUNDARY, dict(found))


def same(stamped: Mapping[str, str]) -> bool:
    """Whether no file that was stamped has changed since."""
    try:
        # A Path for each would cost more than the stat.
        now = [str(stamp_of(os.stat(path))) for path in stamped]  # noqa: PTH116
    except OSError:
        return False
    return now == list(stamped.values())


def _same_boundary(directory: Path) -> bool:
    """Whether a VM's boundary is what it was; False also when that cannot be told from here."""
    try:
        noted = files.read_json(directory / _BOUNDARY)
    except (OSError, files.BrokenFile):
        return False
    return bool(noted) and same(noted)
