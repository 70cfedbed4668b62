"""Snapshots: the saved state of booted, unclaimed VMs, by the digest of all they depend on."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from reconciler.codes import Code
from reconciler.engine.home import sandbox_directory
from reconciler.engine.spec import Spec
from reconciler.errors import BoxError
from reconciler.images import fingerprint
from reconciler.linux import files
from reconciler.vmm.qemu import Machine

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking: a FIFO in the place of the file would wait for a writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MODE = 0o600
_NOT_A_FILE = frozenset({errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EACCES})
_ASIDE = "state.broken"


class WrongSnapshot(BoxError):
    """What lies in a snapshot's place is not what was written there, or no VM comes of it."""

    code = Code.BROKEN_STATE


def state_path(home: Path, key: str) -> Path:
    """Where the state of snapshot `key` lies, made or not."""
    return home / "snapshots" / key / "state"


@contextlib.contextmanager
def opened(home: Path, key: str) -> Iterator[int | None]:
    """The state of a snapshot, checked, open for reading at its start; None when there is none.

    What was checked is what the descriptor is of, whatever lies at the path by then. It is not
    removed before the descriptor is closed, by the VMM that got it too. Raises
    WrongSnapshot for one that is not as it was written; and when the block raises that, because no
    VM comes of it, the same is done about it: it is put aside, so that the next is made anew.
    """
    path = state_path(home, key)
    with contextlib.ExitStack() as stack:
        try:
            fd = os.open(path, _READ)
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            if error.errno not in _NOT_A_FILE:
                raise
            with contextlib.suppress(FileNotFoundError):
                _put_aside(home, path, path.lstat())
            raise WrongSnapshot("The snapshot is no file of ours.", details=str(error)) from error
        stack.callback(os.close, fd)
        if not _held(path, fd):
            yield None
            return
        try:
            _check(home, key, fd)
            yield fd
        except WrongSnapshot:
            _put_aside(home, path, os.fstat(fd))
            raise


def _held(path: Path, fd: int) -> bool:
    """Keep the state from being removed as long as `fd` is open; False when that is under way."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return os.path.samestat(path.lstat(), os.fstat(fd))
    except (BlockingIOError, FileNotFoundError):
        return False


def _check(home: Path, key: str, fd: int) -> None:
    facts = os.fstat(fd)
    mode = stat.S_IMODE(facts.st_mode)
    if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid() or mode & ~_MODE:
        found = f"{stat.filemode(facts.st_mode)}, of UID {facts.st_uid}"
        raise WrongSnapshot("The snapshot is no file of ours alone.", details=found)
    try:
        noted = files.read_json(state_path(home, key).with_name("meta.json"))
    except (OSError, files.BrokenFile) as error:
        raise WrongSnapshot("Nothing says what the snapshot holds.", details=str(error)) from error
    try:
        digest = fingerprint.open_file_digest(home, fd)
    except OSError as error:
        raise WrongSnapshot("The snapshot cannot be read.", details=str(error)) from error
    if (noted.get("key"), noted.get("sha256")) != (key, digest):
        raise WrongSnapshot(
            "The snapshot is not what was written.",
            details=f"written: {noted.get('sha256')}, of {noted.get('key')}\nfound: {digest}",
        )


def _put_aside(home: Path, path: Path, facts: os.stat_result) -> None:
    """Move the state away, if it is still the file that was looked at; the last one is kept."""
    with _changing(home), contextlib.suppress(FileNotFoundError):
        if os.path.samestat(path.lstat(), facts):
            aside = path.with_name(_ASIDE)
            _remove(aside)
            path.rename(aside)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def _changing(home: Path) -> contextlib.AbstractContextManager[int]:
    """Held by whoever puts a snapshot in its place or takes one away, for that moment."""
    return files.locked(home / "snapshots" / ".lock")


def keep(home: Path, key: str, machine: Machine, write: Callable[[int], None]) -> None:
    """Make the snapshot `key`: `write` fills the open file. Whole, or not there at all.

    It holds the guest's memory: mode 0600 in a directory of its own that is 0700. Of two makers at
    once the first one's stays.
    """
    path = state_path(home, key)
    temporary = path.with_name(f".state.{secrets.token_hex(8)}.tmp")
    fd = _begin(home, temporary)
    try:
        try:
            write(fd)
            digest = fingerprint.contents_digest(fd)
            # Its name is not to outlive a power cut that its bytes do not.
            os.fsync(fd)
            noted = {"key": key, "machine": asdict(machine), "sha256": digest}
            with _changing(home):
                # Never in the place of another, whose digest would be lost before its file is.
                if path.exists():
                    temporary.unlink()
                else:
                    # Whoever finds it may start from it, also while this VMM has its copy open.
                    fcntl.flock(fd, fcntl.LOCK_SH)
                    files.write_json(path.with_name("meta.json"), noted)
                    temporary.rename(path)
        finally:
            os.close(fd)
        files.sync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _begin(home: Path, temporary: Path) -> int:
    with _changing(home):
        temporary.parent.mkdir(mode=0o700, exist_ok=True)
        _clear(temporary.parent)
        fd = os.open(temporary, _CREATE, _MODE)
        # Held as long as its maker lives: we, or the VMM that got the descriptor from us.
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd


def _clear(directory: Path) -> None:
    """Take away what makers that were killed have left: each may be as large as a VM's memory."""
    for path in directory.glob(".state.*.tmp"):
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            fd = os.open(path, _READ)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(fd)


def keys(home: Path) -> frozenset[str]:
    """The keys of all snapshots there are, and of what crashes have left of some."""
    with os.scandir(home / "snapshots") as entries:
        return frozenset(each.name for each in entries if each.is_dir(follow_symlinks=False))


def remove(home: Path, key: str, unused: Callable[[], bool]) -> bool:
    """Take a snapshot away; False, and nothing done, when it is being made or started from.

    `unused` is asked when no start from it can begin any more. A crash in the middle leaves no
    snapshot, and what it leaves goes with the next removal.
    """
    state = state_path(home, key)
    with _changing(home), contextlib.ExitStack() as stack:
        for path in (state, *state.parent.glob(".state.*.tmp")):
            if not _claimed(path, stack):
                return False
        if not unused():
            return False
        _remove(state)
        shutil.rmtree(state.parent, ignore_errors=True)
        return True


def _claimed(path: Path, stack: contextlib.ExitStack) -> bool:
    try:
        fd = os.open(path, _READ)
    except OSError:
        # Not there, or no file: nobody starts from it.
        return True
    stack.callback(os.close, fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def forget_broken(home: Path, key: str, *, seconds: float) -> None:
    """Take away a state that was put aside more than `seconds` ago."""
    aside = state_path(home, key).with_name(_ASIDE)
    with _changing(home), contextlib.suppress(FileNotFoundError):
        if aside.lstat().st_ctime < time.time() - seconds:
            _remove(aside)


def remember(home: Path, spec: Spec, key: str) -> None:
    """Note that `key` is the snapshot of this spec's VM."""
    value = {"vm_digest": spec.vm_digest, "snapshot": key}
    files.write_json(sandbox_directory(home, spec.name) / "built.json", value)


def last(home: Path, name: str) -> str | None:
    """The key of the snapshot that a VM of sandbox `name` had last, of whatever spec."""
    return _noted(home, name)[1]


def _noted(home: Path, name: str) -> tuple[str | None, str | None]:
    try:
        value = files.read_json(home / "sandboxes" / name / "built.json")
    except (FileNotFoundError, files.BrokenFile):
        return None, None
    digest, key = value.get("vm_digest"), value.get("snapshot")
    return (digest, key) if isinstance(digest, str) and isinstance(key, str) else (None, None)


def remembered(home: Path, spec: Spec) -> str | None:
    """The key of the snapshot that a VM of this very spec had last; None when none is noted."""
    digest, key = _noted(home, spec.name)
    return key if digest == spec.vm_digest else None


def exists(home: Path, spec: Spec) -> bool:
    """Whether a VM of this spec was built and its snapshot is still there."""
    key = remembered(home, spec)
    return key is not None and state_path(home, key).exists()
