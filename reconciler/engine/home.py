"""BOX_HOME: where everything of box lies, for its owner alone."""

from __future__ import annotations

import os
from pathlib import Path

from reconciler.boxfile.names import check_name
from reconciler.engine import place
from reconciler.errors import BoxError, as_box_error
from reconciler.linux import files

_DIRECTORIES = ("run", "sandboxes", "runtime", "proofs", "snapshots")


def home_path() -> Path:
    """BOX_HOME, else ~/.box; it need not exist. Raises Refused for a relative one."""
    return Path(place.home_place())


def open_home() -> Path:
    """The home, made on first use, private to its owner; sets this process's umask to 077.

    Raises Refused when it is somebody else's or open to others, BoxError when it cannot be used.
    """
    os.umask(0o077)
    return private_home(home_path())


def private_home(path: Path) -> Path:
    """The home at `path`, made on first use, for a program that is not ours: its umask stays.

    Whatever is made below it has a mode of its own or lies in a directory that is private. Raises
    Refused when the home is somebody else's or open to others, BoxError when it cannot be used.
    """
    try:
        return _private_home(path)
    except OSError as raised:
        error = as_box_error(raised)
        hint = error.hint or "set BOX_HOME to a directory that you can write"
        raise BoxError(error.brief, details=error.details, hint=hint) from raised


def _private_home(path: Path) -> Path:
    place.check_way(str(path))
    make_private(path)
    path = Path(place.private_place(str(path)))
    for name in _DIRECTORIES:
        (path / name).mkdir(mode=0o700, exist_ok=True)
    files.sweep(path)
    files.sweep(path / "run")
    return path


def make_private(path: Path) -> None:
    """Make a directory for its owner alone, and those above it that none but us can write."""
    for each in reversed(path.parents):
        # Not pathlib's `parents`: those get what the umask of a program that uses us leaves.
        if not each.is_dir():
            each.mkdir(mode=0o755, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


def disk_of(home: Path, name: str) -> Path:
    """Where the /data disk of a sandbox is, or would be."""
    return home / "sandboxes" / name / "data.img"


def sandbox_directory(home: Path, name: str) -> Path:
    """The directory of one sandbox, made when missing. Raises InvalidName."""
    path = home / "sandboxes" / check_name(name)
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def machine_id(home: Path, name: str) -> bytes:
    """The ID of the machine that every VM of a sandbox is: 16 bytes."""
    import hashlib

    text = os.fsencode(home) + b"\0" + name.encode()
    return hashlib.sha256(b"machine-id\0" + text).digest()[:16]
