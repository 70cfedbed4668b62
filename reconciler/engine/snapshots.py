"""Snapshots: the saved state of booted, unclaimed VMs, by the digest of all they depend on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from reconciler.engine.home import sandbox_directory
from reconciler.engine.spec import Spec
from reconciler.linux import files
from reconciler.vmm.qemu import Machine

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def state_path(home: Path, key: str) -> Path:
    """Where the state of snapshot `key` lies, made or not."""
    return home / "snapshots" / key / "state"


@contextlib.contextmanager
def opened(home: Path, key: str) -> Iterator[int | None]:
    """The state of a snapshot open for reading; None when there is none."""
    try:
        fd = os.open(state_path(home, key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def keep(home: Path, key: str, machine: Machine, write: Callable[[int], None]) -> None:
    """Make the snapshot `key`: `write` fills the open file. Whole, or not there at all.

    It holds the guest's memory: mode 0400 in a directory of its own that is 0700.
    """
    path = state_path(home, key)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    temporary = path.with_name(f".state.{secrets.token_hex(8)}.tmp")
    fd = _begin(temporary)
    try:
        try:
            write(fd)
            os.fchmod(fd, 0o400)
        finally:
            os.close(fd)
        files.write_json(path.with_name("meta.json"), {"machine": asdict(machine)})
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _begin(temporary: Path) -> int:
    with files.locked(temporary.with_name("lock")):
        _clear(temporary.parent)
        fd = os.open(temporary, _CREATE, 0o600)
        # Held as long as its maker lives: we, or the VMM that got the descriptor from us.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd


def _clear(directory: Path) -> None:
    """Take away what makers that were killed have left: each may be as large as a VM's memory."""
    for path in directory.glob(".state.*.tmp"):
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(fd)


def drop(home: Path, key: str) -> None:
    """Take away a snapshot that does not load."""
    state_path(home, key).unlink(missing_ok=True)


def remember(home: Path, spec: Spec, key: str) -> None:
    """Note that `key` is the snapshot of this spec's VM."""
    value = {"vm_digest": spec.vm_digest, "snapshot": key}
    files.write_json(sandbox_directory(home, spec.name) / "built.json", value)


def exists(home: Path, spec: Spec) -> bool:
    """Whether a VM of this spec was built and its snapshot is still there."""
    try:
        value = files.read_json(home / "sandboxes" / spec.name / "built.json")
    except (FileNotFoundError, files.BrokenFile):
        return False
    key = value.get("snapshot")
    if value.get("vm_digest") != spec.vm_digest or not isinstance(key, str):
        return False
    return state_path(home, key).exists()
