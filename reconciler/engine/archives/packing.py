"""A tar stream made of the host's files."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from reconciler.errors import BoxError, Missing, Refused
from reconciler.images.tar import Header, Kind, padding
from reconciler.images.tarwriter import END, encode
from reconciler.linux import files

_COPY_BYTES = 1 << 18
_OPEN = os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC

Note = Callable[[str], object]


def top_name(path: str) -> bytes:
    """The name that what lies at `path` has in an archive. Raises Refused for /."""
    name = (Path(path).resolve() if _is_dots(path) else Path(path)).name
    if not name:
        raise Refused("The whole of / cannot be copied.")
    return os.fsencode(name)


def _is_dots(path: str) -> bool:
    return path.rstrip("/").rpartition("/")[2] in ("", ".", "..")


def check(path: str) -> bool:
    """Whether there is a folder at `path`, or a file. Raises Missing and Refused for all else."""
    try:
        mode = Path(path).stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Missing(f"There is no {path}.") from error
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise Refused(f"{path} is neither a file nor a folder.")
    return stat.S_ISDIR(mode)


def pack(path: str, output: int, note: Note) -> None:
    """Write what lies at `path` to an open file as an archive.

    A link at `path` itself is followed, those below go as they are. Devices, fifos and sockets are
    left out, and `note` is told. Raises BoxError and OSError; then the archive has no end.
    """
    _Packing(output, note).top(path)
    files.write_all(output, END)


class _Packing:
    def __init__(self, output: int, note: Note) -> None:
        self._output = output
        self._note = note

    def top(self, path: str) -> None:
        fd = os.open(path, _OPEN)
        self._open_file(fd, top_name(path), path)

    def _open_file(self, fd: int, name: bytes, path: str) -> None:
        """Pack an open file or folder, and close it."""
        try:
            found = os.fstat(fd)
            if stat.S_ISDIR(found.st_mode):
                self._put(name, Kind.DIRECTORY, found)
                for entry in sorted(os.listdir(fd)):
                    self._entry(fd, entry, name + b"/" + os.fsencode(entry), f"{path}/{entry}")
            else:
                self._data(fd, name, found, path)
        finally:
            os.close(fd)

    def _entry(self, directory: int, entry: str, name: bytes, path: str) -> None:
        found = os.stat(entry, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            link = os.fsencode(os.readlink(entry, dir_fd=directory))
            self._put(name, Kind.SYMLINK, found, link)
        elif stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode):
            try:
                fd = os.open(entry, _OPEN | os.O_NOFOLLOW, dir_fd=directory)
            except OSError as error:
                raise BoxError(f"{path}: {error.strerror}") from error
            self._open_file(fd, name, path)
        else:
            self._note(f"{path}: left out, it is neither a file, a folder nor a link")

    def _put(self, name: bytes, kind: Kind, found: os.stat_result, link: bytes = b"") -> None:
        header = Header(
            name=name,
            kind=kind,
            mode=found.st_mode & 0o777,
            mtime=max(0, int(found.st_mtime)),
            size=found.st_size if kind is Kind.FILE else 0,
            link=link,
        )
        files.write_all(self._output, encode(header))

    def _data(self, fd: int, name: bytes, found: os.stat_result, path: str) -> None:
        self._put(name, Kind.FILE, found)
        left = found.st_size
        while left > 0:
            data = os.read(fd, min(left, _COPY_BYTES))
            if not data:
                raise BoxError(f"{path} became shorter while it was read.")
            files.write_all(self._output, data)
            left -= len(data)
        files.write_all(self._output, b"\0" * padding(found.st_size))
