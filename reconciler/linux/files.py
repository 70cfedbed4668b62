"""State files on a real disk: whole or not there, and one writer at a time."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reconciler.codes import Code
from reconciler.errors import BoxError, Busy
from reconciler.linux import plain

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_POLL_SECONDS = 0.02
_TEMPORARY = ".tmp"
_ABANDONED_SECONDS = 600.0


class BrokenFile(BoxError):
    """A state file of ours does not hold what we write there."""

    code = Code.BROKEN_STATE


def write_atomic(path: Path, data: bytes, mode: int = 0o600, *, durable: bool = True) -> None:
    """Put `data` at `path` so that every reader, and a power cut, sees the old or the new whole.

    The file gets exactly `mode`, whatever the umask. What means nothing after this boot need not be
    `durable`: it is not waited for until it is on the disk, and a power cut may leave it empty.
    Raises OSError; then `path` is as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}{_TEMPORARY}")
    fd = os.open(temporary, _CREATE, 0o600)
    try:
        try:
            write_all(fd, data)
            os.fchmod(fd, mode)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        temporary.replace(path)
    except IsADirectoryError as error:
        temporary.unlink(missing_ok=True)
        raise plain.NotPlain(error.errno, "a directory lies in the way", str(path)) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_directory(path.parent)


def sweep(directory: Path) -> None:
    """Take away what writers that were killed have left in `directory`.

    Nothing younger than ten minutes: it may be another process's, under way. Raises OSError.
    """
    oldest = time.time() - _ABANDONED_SECONDS
    for entry in os.scandir(directory):
        if entry.name.startswith(".") and entry.name.endswith(_TEMPORARY):
            with contextlib.suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < oldest:
                    Path(entry.path).unlink()


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write every byte of `data` to `fd`: one write(2) may take less. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_directory(directory: Path) -> None:
    """Make renames in `directory` last through a power cut. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in `path`.

    Raises FileNotFoundError when there is none and BrokenFile when it is something else.
    """
    try:
        value = json.loads(plain.read_plain(path))
    except plain.NotPlain as error:
        raise BrokenFile(f"{path} is not a file of ours", details=error.strerror) from error
    except (ValueError, RecursionError) as error:
        raise BrokenFile(f"{path} is not JSON", details=str(error)) from error
    if not isinstance(value, dict):
        raise BrokenFile(f"{path} holds JSON, but not an object")
    return value


def write_json(
    path: Path, value: dict[str, Any], mode: int = 0o600, *, durable: bool = True
) -> None:
    """Write a JSON object with sorted keys through `write_atomic`."""
    text = json.dumps(value, indent=1, sort_keys=True) + "\n"
    write_atomic(path, text.encode(), mode, durable=durable)


@contextlib.contextmanager
def locked(path: Path, *, timeout_seconds: float = 30.0) -> Iterator[int]:
    """Hold an exclusive flock(2) on `path` (made when missing, mode 0600); yields its fd.

    The kernel drops the lock with its holder, so a crash leaves nothing to clean up. Raises Busy
    when somebody else still holds it after `timeout_seconds` (0: do not wait at all).
    """
    fd = _take(path, time.monotonic() + timeout_seconds)
    try:
        yield fd
    finally:
        os.close(fd)


def _take(path: Path, deadline: float) -> int:
    while True:
        fd = os.open(path, _LOCK, 0o600)
        try:
            _wait(fd, path, deadline)
            if _is_still(path, fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        # The file was removed between open and flock: a lock on it keeps nobody out.
        os.close(fd)


def _wait(fd: int, path: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise Busy(f"another box command holds {path}", hint="try again later") from None
            time.sleep(_LOCK_POLL_SECONDS)
        else:
            return


def _is_still(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False
