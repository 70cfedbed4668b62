"""A running VM as a command needs it: read from its record alone, and with nothing else loaded."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.engine.stamp import stamp_of
from reconciler.errors import BoxError, Busy, Frozen, GuestFailed, NotRunning
from reconciler.guest import protocol
from reconciler.linux import identity, plain, proc_stat, quick_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from reconciler.engine.records import VmRecord

    StrPath = str | os.PathLike[str]

_BOUNDARY = "boundary.json"
START = "start.json"
"""In a VM's directory: what was noted of its confinement at its start."""
FROZEN = "frozen.json"
"""In a VM's directory as long as it is frozen, or should be: why, and since when."""
DIFFERED = "ConfinementDiffered"
NO_SPACE = "NoSpace"
"""The reasons there are: one waits for a person, one for room on the host's file system."""


class Contact(NamedTuple):
    """`directory` holds its ports. What follows `token` is what commands have by default.

    `env` is the image's, then the Boxfile's.
    """

    vm: str
    sandbox: str
    incarnation: int
    directory: str
    token: bytes
    env: dict[str, str]
    timeout_seconds: int
    working_dir: str
    user: str


def running(home: StrPath, name: str) -> Contact:
    """The VM of a sandbox that is up, on a kernel boundary that is still the proven one.

    Raises NotRunning when it is not up, Frozen, Refused without its proof, BrokenFile.
    """
    try:
        value = _read_json(f"{os.fspath(home)}/run/{name}.json")
        who = value["identity"] and identity.ProcessIdentity.from_dict(value["identity"])
        found = read(home, name, value)
    except FileNotFoundError:
        who = None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError, plain.NotPlain):
        # It says what is wrong with the record, and what to do about it.
        _record(home, name)
        raise
    if not identity.runs(who):
        raise not_running(name)
    if is_frozen(found.directory):
        raise frozen(name, found.directory)
    if not _same_boundary(found.directory):
        from pathlib import Path

        from reconciler.engine import launching

        record = _record(home, name)
        if record is not None:
            launching.check_proof(Path(home), record)
    return found


def not_running(name: str) -> NotRunning:
    """The error that a sandbox is not up."""
    return NotRunning(f"{name} is not running.", hint=f"box up {name}")


def is_frozen(directory: StrPath) -> bool:
    """Whether a VM is frozen, or about to be: nothing in it answers then."""
    return os.path.exists(f"{os.fspath(directory)}/{FROZEN}")  # noqa: PTH110 - slow to load


def frozen_for(directory: StrPath) -> str | None:
    """The reason why a VM is frozen; None when it is not. What cannot be read is no passing one."""
    if not is_frozen(directory):
        return None
    return reason_of(_noted(directory))


def reason_of(noted: Mapping[str, Any]) -> str:
    """The reason in what is noted of a freezing: DIFFERED unless it says the other one."""
    return NO_SPACE if noted.get("reason") == NO_SPACE else DIFFERED


def frozen(name: str, directory: StrPath) -> Frozen:
    """The error that a sandbox's VM is frozen."""
    noted = _noted(directory)
    why = str(noted["why"]) if "why" in noted else None
    if reason_of(noted) == NO_SPACE:
        return Frozen(
            f"{name} is paused: the host's file system is nearly full.",
            details=why,
            hint=f"free some space, and `box watch` lets it go on, or `box up {name}`; without, "
            f"`box thaw {name}` does, and `box down {name}` ends it without what it has not "
            "written out",
        )
    return Frozen(
        f"{name} is frozen.",
        details=why,
        hint=f"`box inspect {name}` reads it as it stands; `box thaw {name}` lets it go on, "
        f"`box down {name}` ends it",
    )


def _noted(directory: StrPath) -> dict[str, Any]:
    try:
        return _read_json(f"{os.fspath(directory)}/{FROZEN}")
    except (OSError, TypeError, ValueError, RecursionError):
        return {}


@contextlib.contextmanager
def answering(vm: Contact) -> Iterator[None]:
    """Where the VM's agent is silent because somebody stopped its VMM, say so in the error."""
    try:
        yield
    except (GuestFailed, Busy) as error:
        error.hint = _stopped_hint(vm) or error.hint
        raise


def _stopped_hint(vm: Contact) -> str | None:
    try:
        value = _read_json(f"{vm.directory}.json")["identity"]
        pid = _stopped(vm.directory, identity.ProcessIdentity.from_dict(value))
    except (OSError, BoxError, AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return None
    if pid is None:
        return None
    hint = stopped(pid)
    return hint if vm.vm != vm.sandbox else f"{hint}, `box down {vm.sandbox}` ends it"


def stopped(pid: int) -> str:
    """What there is to say of a VMM that somebody stopped, and who is not box."""
    return f"its VMM was stopped, and not by box: `sudo kill -CONT {pid}` lets it go on"


def stopped_vmm(home: Path, vm: VmRecord) -> int | None:
    """The PID of a VM's VMM that stands still for a signal of somebody else's; None if it does not.

    Only a hint: what cannot be read counts as not stopped.
    """
    try:
        return _stopped(str(vm.directory(home)), vm.identity) if vm.identity else None
    except (OSError, BoxError):
        return None


def _stopped(directory: str, who: identity.ProcessIdentity) -> int | None:
    with identity.open_process(who) as process:
        if process is None or proc_stat.parse_stat(process.read("stat")).state != "T":
            return None
    return None if is_frozen(directory) else who.pid


def _record(home: StrPath, name: str) -> VmRecord | None:
    from pathlib import Path

    from reconciler.engine import records

    return records.vm_record(Path(home), name)


def _read_json(path: str) -> dict[str, Any]:
    """The JSON object in a file. Raises OSError, ValueError, RecursionError."""
    value = quick_json.loads(plain.read_plain(path))
    if not isinstance(value, dict):
        raise TypeError(path)
    return value


def read(home: StrPath, vm: str, value: dict[str, Any]) -> Contact:
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
        directory=f"{os.fspath(home)}/run/{vm}",
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
        directory=str(record.directory(home)),
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
    from reconciler.linux import files

    files.write_json(directory / _BOUNDARY, dict(found), durable=False)


def same(stamped: Mapping[str, str]) -> bool:
    """Whether no file that was stamped has changed since."""
    try:
        # A Path for each would cost more than the stat.
        now = [str(stamp_of(os.stat(path))) for path in stamped]  # noqa: PTH116
    except OSError:
        return False
    return now == list(stamped.values())


def _same_boundary(directory: str) -> bool:
    """Whether a VM's boundary is what it was; False also when that cannot be told from here."""
    try:
        noted = _read_json(f"{directory}/{_BOUNDARY}")
    except (OSError, TypeError, ValueError, RecursionError):
        return False
    return bool(noted) and same(noted)
