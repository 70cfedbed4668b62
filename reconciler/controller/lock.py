"""One controller a folder: the second one refuses. And what is remembered of a folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from reconciler.controller.folder import FolderIdentity
from reconciler.errors import BoxError, Busy
from reconciler.linux import files, plain


class TwoControllers(Busy):
    """Another controller holds the folder."""


@contextlib.contextmanager
def folder_lock(home: Path, identity: FolderIdentity) -> Iterator[None]:
    """Hold the folder, whatever path it is reached by. Raises TwoControllers naming the holder.

    The lock is in BOX_HOME: the watched folder may be shared, read-only or on NFS. The kernel
    drops it with its holder, so no crash leaves one behind.
    """
    path = _lock_path(home, identity)
    try:
        with files.locked(path, timeout_seconds=0) as fd:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
            yield
    except Busy as error:
        if isinstance(error, TwoControllers) or path.name not in error.brief:
            raise
        pid = controller_of(home, identity)
        raise TwoControllers(
            f"Another controller (PID {pid or 'unknown'}) converges this folder.",
            hint="`box status` shows what it does; stop it to run another",
        ) from error


def controller_of(home: Path, identity: FolderIdentity) -> int | None:
    """The PID of the controller that holds the folder now, None when none does."""
    path = _lock_path(home, identity)
    try:
        with files.locked(path, timeout_seconds=0):
            return None
    except Busy:
        with contextlib.suppress(OSError, ValueError):
            return int(plain.read_plain(path))
    return None


@dataclass(frozen=True)
class FolderMemory:
    """What outlives the controller: which directory the path meant, and what was ruled.

    `held` names are kept though their files are gone, `doomed` ones are being destroyed.
    """

    path: str
    identity: FolderIdentity | None = None
    held: frozenset[str] = frozenset()
    doomed: frozenset[str] = frozenset()

    def pinned_to(self, identity: FolderIdentity) -> FolderMemory:
        """The same for another directory at the path."""
        return replace(self, identity=identity)


def recall(home: Path, path: Path) -> FolderMemory:
    """What is remembered of the folder at `path`; nothing when there is nothing readable."""
    empty = FolderMemory(str(path))
    try:
        value = files.read_json(_memory_path(home, path))
        return FolderMemory(
            str(path),
            FolderIdentity(int(value["device"]), int(value["inode"])),
            frozenset(str(name) for name in value["held"]),
            frozenset(str(name) for name in value["doomed"]),
        )
    except FileNotFoundError:
        return empty
    except (OSError, BoxError, KeyError, TypeError, ValueError):
        # Without a pin nothing is destroyed on the first look: see survey.
        return empty


def remember(home: Path, memory: FolderMemory) -> None:
    """Write it down. Raises OSError."""
    if memory.identity is None:
        return
    value = {
        "path": memory.path,
        "device": memory.identity.device,
        "inode": memory.identity.inode,
        "held": sorted(memory.held),
        "doomed": sorted(memory.doomed),
    }
    files.write_json(_memory_path(home, Path(memory.path)), value)


def leave_confirmation(home: Path, path: Path, token: str) -> None:
    """Tell the controller of this folder that a deletion was meant. Raises OSError."""
    files.write_atomic(_confirmation_path(home, path), token.encode())


def confirmation_waits(home: Path, path: Path) -> bool:
    """Whether a token was left and not taken yet."""
    return _confirmation_path(home, path).exists()


def take_confirmation(home: Path, path: Path) -> str | None:
    """The token that was left, once."""
    confirmation = _confirmation_path(home, path)
    try:
        token = plain.read_plain(confirmation).decode()
        confirmation.unlink()
    except (OSError, ValueError):
        return None
    return token


def log_path(home: Path, path: Path) -> Path:
    """Where the controller of the folder at `path` logs."""
    return _directory(home) / f"{_key(path)}.log"


def _directory(home: Path) -> Path:
    directory = home / "folders"
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory


def _key(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def _lock_path(home: Path, identity: FolderIdentity) -> Path:
    return _directory(home) / f"{identity.device}-{identity.inode}.lock"


def _memory_path(home: Path, path: Path) -> Path:
    return _directory(home) / f"{_key(path)}.json"


def _confirmation_path(home: Path, path: Path) -> Path:
    return _directory(home) / f"{_key(path)}.confirm"
