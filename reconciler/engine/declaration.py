"""From a Boxfile on disk to a spec: the one way for commands and the controller.

A folder of Boxfiles is data of whoever can write to it: nothing in it may hold us up, lead us out
of it, or fill our memory.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.boxfile.names import INNER_NAME
from reconciler.boxfile.problems import InvalidBoxfile, Problem, printable
from reconciler.boxfile.text import MAX_BYTES
from reconciler.engine.home import home_path
from reconciler.engine.spec import Spec, spec_of
from reconciler.engine.stamp import stamp_of
from reconciler.errors import BoxError

if TYPE_CHECKING:
    from reconciler.boxfile.loader import Loaded

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO without it waits for a writer.
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NotRead(BoxError):
    """There is something, but no text of a Boxfile. `reason` is one CamelCase word."""

    def __init__(self, reason: str, brief: str) -> None:
        super().__init__(brief)
        self.reason = reason


class BeingWritten(NotRead):
    """The file changed while it was read: read it again in a moment."""

    def __init__(self) -> None:
        super().__init__("BeingWritten", "is being written")


class NotHere(InvalidBoxfile):
    """A good Boxfile that asks for what this box or this host does not have, or does not give."""

    def __init__(self, reason: str, source: str, problems: Sequence[Problem]) -> None:
        super().__init__(source, problems)
        self.reason = reason


def declare(data: bytes, *, name: str, path: Path) -> Spec:
    """What the bytes of the Boxfile at `path` declare for the sandbox `name`.

    Raises InvalidBoxfile with every problem; NotHere when the text is good and this box cannot
    run it.
    """
    from reconciler.boxfile.loader import read

    return judged(read(data, source=str(path)), name=name, path=path)


def judged(loaded: Loaded, *, name: str, path: Path) -> Spec:
    """What a good Boxfile at `path` declares, if this box and this host give it. Raises NotHere."""
    if problems := host_problems(loaded, path):
        raise NotHere("MountRefused", str(path), problems)
    if loaded.notes:
        raise NotHere("BackendUnavailable", str(path), loaded.notes)
    return spec_of(name, loaded.boxfile, path.absolute().parent)


def host_problems(loaded: Loaded, path: Path) -> list[Problem]:
    """What this host does not give a good Boxfile at `path`: mounts of what no sandbox may see."""
    mounts = loaded.boxfile.mounts
    if not mounts:
        return []
    from reconciler.engine.grounds import gather
    from reconciler.engine.mounts import Source, refusal

    grounds = gather(home_path(), os.environ)
    folder = watched_folder(path)
    problems = []
    for index, mount in enumerate(mounts):
        writable = mount.mode == "rw"
        source = Source(mount.host, folder, mount.follow_symlink, mount.risky, writable)
        if why := refusal(source, grounds):
            problems.append(loaded.problem(("mounts", index, "host"), why))
    return problems


def watched_folder(path: Path) -> Path:
    """DIR of a Boxfile's path DIR/NAME.Boxfile or DIR/NAME/Boxfile."""
    parent = path.absolute().parent
    return parent.parent if path.name == INNER_NAME else parent


def read_file(path: Path) -> bytes:
    """The bytes of one Boxfile, by the rules of its folder. Raises NotRead, OSError."""
    folder = watched_folder(path)
    directory = os.open(folder, _DIRECTORY)
    try:
        return read_below(directory, str(path.absolute().relative_to(folder)))
    finally:
        os.close(directory)


def read_below(directory: int, relative: str) -> bytes:
    """The bytes of a Boxfile below the open `directory`, at most MAX_BYTES.

    Symbolic links are followed as long as they stay below the directory. Raises NotRead, OSError.
    """
    # Before opening: opening a device can already do something.
    check_regular(os.stat(relative, dir_fd=directory).st_mode)
    fd = os.open(relative, _FILE, dir_fd=directory)
    try:
        before = os.fstat(fd)
        check_regular(before.st_mode)
        # Asked of what is open: whatever is renamed meanwhile, this is what will be read.
        if not _true_path(fd).is_relative_to(_true_path(directory)):
            raise NotRead("OutsideFolder", "is a link out of the folder of Boxfiles")
        if before.st_size > MAX_BYTES:
            raise _too_large()
        data = _read(fd)
        after = os.fstat(fd)
    finally:
        os.close(fd)
    if len(data) > MAX_BYTES:
        raise _too_large()
    if stamp_of(after) != stamp_of(before):
        raise BeingWritten
    return data


def check_regular(mode: int) -> None:
    """Raise NotRead unless a file of this mode is a regular one."""
    if stat.S_ISREG(mode):
        return
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    kind = kinds.get(stat.S_IFMT(mode), "no regular file")
    raise NotRead("NotRegular", f"is {kind}, no file")


def unreadable(error: OSError) -> NotRead:
    """The error of a system call, in the words of this module."""
    reason = printable(error.strerror or str(error))
    return NotRead("Unreadable", f"cannot be read: {reason}")


def _true_path(fd: int) -> Path:
    return Path(f"/proc/self/fd/{fd}").readlink()


def _read(fd: int) -> bytes:
    """At most one byte more than a Boxfile may have: a file can grow after fstat."""
    parts = []
    left = MAX_BYTES + 1
    while left > 0 and (part := os.read(fd, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _too_large() -> NotRead:
    return NotRead("TooLarge", f"is larger than {MAX_BYTES >> 10} KiB")
