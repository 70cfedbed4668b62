"""One part of a reading: what it gives, why it could not be read, or that the whole is void."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from reconciler.confinement.reading import Unreadable
from reconciler.linux.proc_stat import ParseError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

LISTINGS = 20
"""How often what changes is listed before the reading is given up."""
OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Moved(Exception):
    """What was being read ended or changed on the way."""


def part(read: Callable[[], T]) -> T | Unreadable:
    """What `read` gives; a process that has ended makes the whole reading void instead."""
    try:
        return read()
    except ProcessLookupError:
        raise
    except OSError as error:
        return Unreadable(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except ParseError as error:
        return Unreadable(str(error))


def entries(directory: int, name: str) -> tuple[str, ...]:
    """The entries of a directory of /proc, by number. Raises OSError."""
    fd = os.open(name, OPEN_DIRECTORY, dir_fd=directory)
    try:
        return tuple(sorted(os.listdir(fd), key=int))
    finally:
        os.close(fd)
