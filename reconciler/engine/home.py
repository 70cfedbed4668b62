"""BOX_HOME: where everything of box lies, for its owner alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from reconciler.boxfile.names import check_name
from reconciler.errors import Refused
from reconciler.linux import files

_DIRECTORIES = ("run", "sandboxes", "runtime", "proofs", "snapshots")


def home_path() -> Path:
    """BOX_HOME, else ~/.box; it need not exist. Raises Refused for a relative one."""
    given = os.environ.get("BOX_HOME")
    return checked(Path(given) if given else Path.home() / ".box")


def checked(path: Path) -> Path:
    """The path unchanged, if a home can be there. Raises Refused."""
    if not path.is_absolute():
        raise Refused(f"BOX_HOME is {str(path)!r}, which is not an absolute path.")
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        # The OCI runtime's configuration is JSON, which has no words for other bytes.
        raise Refused(f"BOX_HOME is {str(path)!a}, which is not UTF-8.") from error
    return path


def open_home() -> Path:
    """The home, made on first use, private to its owner; sets this process's umask to 077.

    Raises Refused when it is somebody else's or open to others.
    """
    os.umask(0o077)
    return private_home(home_path())


def private_home(path: Path) -> Path:
    """The home at `path`, made on first use, for a program that is not ours: its umask stays.

    Whatever is made below it has a mode of its own or lies in a directory that is private. Raises
    Refused when the home is somebody else's or open to others.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Its one true name: cgroups are named after it, and the launch hides a directory of the host.
    path = path.resolve()
    facts = path.stat()
    if facts.st_uid != os.getuid():
        raise Refused(f"{path} belongs to UID {facts.st_uid}, not to you.", hint="set BOX_HOME")
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise Refused(
            f"{path} can be entered by others; tokens and guests' memory are kept there.",
            hint=f"chmod 700 {path}",
        )
    for name in _DIRECTORIES:
        (path / name).mkdir(mode=0o700, exist_ok=True)
    files.sweep(path)
    files.sweep(path / "run")
    return path


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
