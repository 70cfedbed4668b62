"""Working directories under BOX_HOME/tmp that no crash leaves behind for good."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from reconciler.linux.files import locked

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def scratch(home: Path) -> Iterator[Path]:
    """Yield a new empty directory of mode 0700 on BOX_HOME's filesystem; it is removed afterwards.

    What killed processes left is removed first: a directory in use is locked by its user, and the
    kernel drops the lock with the process. Raises OSError.
    """
    parent = home / "tmp"
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        # Held until the new directory is locked: it must not look abandoned in between.
        with locked(parent / ".lock"):
            _remove_abandoned(parent)
            directory = parent / secrets.token_hex(8)
            directory.mkdir(mode=0o700)
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            fd = os.open(directory, _DIRECTORY)
            stack.callback(os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield directory


def clean(home: Path) -> None:
    """Remove what killed processes left, for who needs no directory of its own."""
    parent = home / "tmp"
    if parent.is_dir():
        with locked(parent / ".lock"):
            _remove_abandoned(parent)


def _remove_abandoned(parent: Path) -> None:
    for directory in parent.iterdir():
        with contextlib.suppress(NotADirectoryError, FileNotFoundError):
            fd = os.open(directory, _DIRECTORY)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
            except BlockingIOError:
                continue
            finally:
                os.close(fd)
