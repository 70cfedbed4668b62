"""Plain files where ours should be: never waited for, never followed, never read without end.

Whatever else lies there (a FIFO, a link, a directory, a file of any size that a torn disk or a hand
left behind) is an error that names it.
"""

from __future__ import annotations

import errno
import os
import stat

MOST_BYTES = 16 << 20
"""Of a state file: the largest real ones have some 100 KiB."""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OTHER_KINDS = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV})


class NotPlain(OSError):
    """Something else lies where a regular file of ours should, or far more than we would write."""


def open_plain(path: str | os.PathLike[str], flags: int = _READ) -> int:
    """A descriptor of the regular file at `path`. Raises OSError, NotPlain for anything else.

    `flags` instead of reading are open(2)'s; links are never followed, nothing is waited for.
    """
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno in _OTHER_KINDS:
            raise _not_plain(path, "not a regular file") from error
        raise
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise _not_plain(path, "not a regular file")


def read_plain(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES) -> bytes:
    """All of a regular file of at most `most_bytes`. Raises OSError, NotPlain."""
    fd = open_plain(path)
    try:
        parts = []
        left = most_bytes + 1
        while left and (part := os.read(fd, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(fd)
    if not left:
        raise _not_plain(path, f"larger than {most_bytes} bytes")
    return b"".join(parts)


def _not_plain(path: str | os.PathLike[str], why: str) -> NotPlain:
    return NotPlain(errno.EINVAL, why, os.fspath(path))
