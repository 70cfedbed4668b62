"""The same attempts by the same program with nothing to hold it: they must work here.

Each is made by a process of its own, as root, in a cgroup with wide limits and in namespaces that
go with it, so that what works harms nobody. What it aims at are processes, sockets and files of the
host.
"""

from __future__ import annotations

import contextlib
import errno
import json
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reconciler.linux import cgroups
from tests.probe.talking import Attempt

_SECONDS = 60.0
_PIDS = 1024
_MEMORY_BYTES = 2 << 30
_LIMITS = {
    "pids": (("pids.max", _PIDS),),
    "memory": (("memory.limit_in_bytes", _MEMORY_BYTES), ("memory.max", _MEMORY_BYTES)),
}
_THROWN_AWAY = ("unshare", "--mount", "--uts", "--ipc", "--cgroup", "--propagation", "private")
# As the first process of a pid namespace of its own.
_AS_INIT = ("--pid", "--fork", "--mount-proc")
_INITS = frozenset({"kernel.reboot", "host.init"})
# What a kernel says of something that it was built without.
_NOT_IN_KERNEL = frozenset(
    {errno.ENOSYS, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT, errno.ENODEV}
)
# What a host need not have: a device node, an address.
_MAY_BE_MISSING = ("device.", "connect.address", "sys.kcore", "sys.sysrq")


@dataclass(frozen=True)
class Proof:
    """What an attempt came to unconfined; `absent` when this host has nothing to attempt it on."""

    attempt: Attempt
    absent: bool


def list_attempts(program: Path) -> list[dict[str, str]]:
    """The id and sentence of each attempt that `program` knows."""
    said = subprocess.run(
        [program], input=b"list\n", capture_output=True, check=True, timeout=_SECONDS
    ).stdout
    found = json.loads(said)
    assert isinstance(found, list)
    return found


def prove(
    program: Path,
    attempt_id: str,
    targets: dict[str, object],
    scratch: Path,
    cgroup: tuple[Path, ...],
) -> Proof:
    """Make one attempt unconfined, in `cgroup`. `scratch` is an empty directory of its own."""
    part = scratch / "kernel"
    part.write_bytes(b"kernel")
    (scratch / "disk").touch()
    # A copy: a program that runs cannot be written by anybody.
    copy = shutil.copy(program, scratch / "program")
    own = {"part": part, "own": copy, "folder": scratch, "devices": scratch}
    aims = {**targets, **own, "disk": scratch / "disk"}
    script = "".join(f"{name}={value}\n" for name, value in aims.items()) + f"try {attempt_id}\n"
    alone = _AS_INIT if attempt_id in _INITS else ()
    with subprocess.Popen(
        [*_THROWN_AWAY, *alone, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        try:
            # It waits for its first line, so nothing of the attempt is outside.
            for directory in cgroup:
                (directory / "cgroup.procs").write_text(str(child.pid))
            said, _ = child.communicate(script.encode(), timeout=_SECONDS)
        finally:
            child.kill()
    if attempt_id == "kernel.reboot" and child.returncode == -signal.SIGHUP:
        # What a pid namespace gets in place of a restart, reboot(2).
        return Proof(Attempt(attempt_id, attempt_id, "worked", 0, 0), absent=False)
    assert said, f"{attempt_id}: the probe ended with {child.returncode}"
    attempt = Attempt(**json.loads(said))
    # EPERM: a test machine may itself be one that is not given its disks.
    missing = attempt.errno in {errno.ENOENT, errno.EPERM} and attempt_id.startswith(
        _MAY_BE_MISSING
    )
    absent = attempt.outcome == "denied" and (attempt.errno in _NOT_IN_KERNEL or missing)
    return Proof(attempt, absent)


@contextlib.contextmanager
def wide_cgroup() -> Iterator[tuple[Path, ...]]:
    """A cgroup that holds more than any attempt asks for, and no more than the host can bear.

    Yields its directories, of those controllers alone: some others let nobody do anything at first.
    """
    name = f"/box-test-{secrets.token_hex(4)}"
    layout = cgroups.detect()
    found = dict.fromkeys(layout.of_controller(each) for each in _LIMITS)
    paths = tuple(each.directory(name) for each in found if each is not None)
    try:
        for path in paths:
            path.mkdir()
        for path in paths:
            for file, value in _LIMITS["pids"] + _LIMITS["memory"]:
                if (path / file).exists():
                    (path / file).write_text(str(value))
        yield paths
    finally:
        cgroups.kill_all(paths)
        cgroups.remove(paths)
