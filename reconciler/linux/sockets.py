"""Unix sockets in private directories, whatever the length of the directory's path."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def listen_private(directory: Path, name: str) -> socket.socket:
    """A listening stream socket at `directory`/`name`, mode 0600. Raises OSError.

    The directory is made 0700 by its owner before: bind(2) and chmod(2) are two steps.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with _short(directory, name) as address:
            sock.bind(address)
        (directory / name).chmod(0o600)
        sock.listen(1)
    except BaseException:
        sock.close()
        raise
    return sock


def connect_private(directory: Path, name: str, *, timeout_seconds: float) -> socket.socket:
    """A stream socket connected to `directory`/`name`. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        sock.settimeout(timeout_seconds)
        with _short(directory, name) as address:
            sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def _short(directory: Path, name: str) -> Iterator[str]:
    """An address by way of /proc: the path of a socket has at most 107 bytes (unix(7))."""
    fd = os.open(directory, _DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)
