"""Logs: bounded files that many processes append to at once, with one older file kept of each."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import TYPE_CHECKING

from reconciler.linux import plain

if TYPE_CHECKING:
    StrPath = str | os.PathLike[str]

OLDER = ".1"
_LOG = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_PIECE_BYTES = 1 << 16
_MOST_READ_BYTES = 1 << 22


def append(path: StrPath, data: bytes, most_bytes: int) -> None:
    """Append `data` in one write, to a file of mode 0600.

    One that has no room left below `most_bytes` becomes the older file first. Waits for nobody, so
    that many writers at once may exceed it by what each writes, and never by half. Raises OSError.
    """
    _make_room(path, len(data), most_bytes)
    fd = os.open(path, _LOG, 0o600)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def append_line(path: StrPath, line: bytes, most_bytes: int) -> None:
    """Append one line, without its end, as `append` does.

    A line that was cut short, by kill -9 or a full disk, is ended first: it costs no other one.
    Empty lines mean nothing.
    """
    _make_room(path, len(line) + 2, most_bytes)
    fd = os.open(path, _LOG, 0o600)
    try:
        # A line that another writer is in the middle of looks torn too: then there is an empty one
        # behind it, which readers pass over.
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        os.write(fd, (b"\n" if torn else b"") + line + b"\n")
    finally:
        os.close(fd)


def _make_room(path: StrPath, size: int, most_bytes: int) -> None:
    try:
        fd = plain.open_plain(path)
    except FileNotFoundError:
        return
    try:
        full = os.fstat(fd).st_size
        if full + size > most_bytes and not _make_older(path, fd) and full > most_bytes * 3 // 2:
            raise BlockingIOError(errno.EAGAIN, "somebody was stopped while making room", str(path))
    finally:
        os.close(fd)


def _make_older(path: StrPath, fd: int) -> bool:
    """Rename the open file; False while somebody else is about to do it.

    Who has the lock of the file at `path` is the only one who may rename it.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    if _is_at(path, fd):
        os.replace(path, f"{os.fspath(path)}{OLDER}")
    return True


def _is_at(path: StrPath, fd: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


class Reader:
    """Reads a log from the beginning of its older file, and goes on as it grows."""

    def __init__(self, path: StrPath) -> None:
        self._path = path
        # The current one first: if it becomes the older one in between, it is only read twice.
        both = (path, f"{os.fspath(path)}{OLDER}")
        self._fds = [fd for each in both if (fd := _open(each)) is not None]
        if len(self._fds) > 1 and os.path.samestat(*map(os.fstat, self._fds)):
            os.close(self._fds.pop())

    def read(self) -> bytes:
        """What is new since the last call, some pieces at a time; b"" when there is no more now."""
        while self._fds:
            data = os.read(self._fds[-1], _PIECE_BYTES)
            if data or (len(self._fds) == 1 and _is_at(self._path, self._fds[0])):
                return data
            # It is an older one now. Who had it open may have written to it before that was so.
            if data := os.read(self._fds[-1], _PIECE_BYTES):
                return data
            if len(self._fds) == 1:
                newer = _open(self._path)
                if newer is None:
                    return b""
                self._fds.insert(0, newer)
            os.close(self._fds.pop())
        self._fds += [fd for fd in [_open(self._path)] if fd is not None]
        return os.read(self._fds[0], _PIECE_BYTES) if self._fds else b""

    def close(self) -> None:
        """Close what is open."""
        while self._fds:
            os.close(self._fds.pop())


def _open(path: StrPath) -> int | None:
    try:
        fd = plain.open_plain(path)
    except FileNotFoundError:
        return None
    # More than any log of ours has is not ours: the end of it may be.
    os.lseek(fd, max(0, os.fstat(fd).st_size - _MOST_READ_BYTES), os.SEEK_SET)
    return fd
