"""Where copied files end up: beside it first, then in place at once, by the rules of cp(1)."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reconciler.engine.archives.unpacking import Parts, Unpacked, restrict
from reconciler.errors import Missing, Refused

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True)
class Destination:
    """An open directory, and the name in it that what is copied gets; None: its own."""

    path: str
    directory: int
    name: bytes | None
    is_folder: bool = False
    """Only a folder may get that name: it was given with a slash behind it."""


@contextmanager
def destination(path: str) -> Iterator[Destination]:
    """Open where `path` is. Raises Missing, Refused and OSError.

    A link at its end may be of a guest's making, copied earlier: only a slash behind it has it
    followed.
    """
    bare = path.rstrip("/") or "/"
    slash = path != bare or bare in (".", "..") or bare.endswith(("/.", "/.."))
    if not slash and Path(bare).is_symlink():
        hint = f"name what it leads to, or write {bare}/"
        raise Refused(f"{bare} is a link, and links are not followed.", hint=hint)
    if Path(bare).is_dir():
        fd = os.open(bare, _DIRECTORY | (0 if slash else os.O_NOFOLLOW))
        name = None
    else:
        parent, last = os.path.split(bare)
        try:
            fd = os.open(parent or ".", _DIRECTORY)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Missing(f"There is no folder {parent}.") from error
        name = os.fsencode(last)
    try:
        yield Destination(path, fd, name, is_folder=slash and name is not None)
    finally:
        os.close(fd)


@contextmanager
def beside(place: Destination) -> Iterator[int]:
    """Make a directory of ours at the destination, gone with all in it when the block ends."""
    name = f".box-cp-{secrets.token_hex(8)}.tmp"
    try:
        os.mkdir(name, 0o700, dir_fd=place.directory)
        fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=place.directory)
        try:
            yield fd
        finally:
            os.close(fd)
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(name, dir_fd=place.directory)


def put(unpacked: Unpacked, temporary: int, place: Destination) -> None:
    """Move what was unpacked in `temporary` to its place.

    A folder joins one that is there, whose mode stays; a file or link takes the place of one.
    Raises Refused, with nothing moved, when a folder would take the place of something else, or
    something else that of a folder. Raises OSError.
    """
    kept: set[Parts] = set()
    if unpacked.top is None and place.name is None:
        _join(temporary, place.directory, (), _check)
        kept.add(())
        _join(temporary, place.directory, (), _move(kept))
        restrict(place.directory, unpacked, frozenset(kept))
        return
    name = place.name or unpacked.top
    assert name is not None
    with _whole(unpacked, temporary, name) as (directory, own):
        _check_folder(directory, own, place)
        _check(directory, own, place.directory, name, ())
        _move(kept)(directory, own, place.directory, name, ())
    if unpacked.directories:
        fd = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=place.directory)
        try:
            restrict(fd, unpacked, frozenset(kept))
        finally:
            os.close(fd)


@contextmanager
def _whole(unpacked: Unpacked, temporary: int, name: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the one entry that is to be moved, as (directory, name)."""
    if unpacked.top is not None:
        yield temporary, unpacked.top
        return
    # What lies in the directory itself gets one of its own to move.
    inner = secrets.token_hex(8).encode()
    mode, mtime = unpacked.directories[0][1:]
    entries = os.listdir(temporary)
    os.mkdir(inner, mode | 0o700, dir_fd=temporary)
    for entry in entries:
        moved = inner + b"/" + os.fsencode(entry)
        os.rename(entry, moved, src_dir_fd=temporary, dst_dir_fd=temporary)
    os.utime(inner, (mtime, mtime), dir_fd=temporary, follow_symlinks=False)
    yield temporary, inner


def _check_folder(directory: int, name: bytes, place: Destination) -> None:
    if place.is_folder and not stat.S_ISDIR(_mode(directory, name)):
        raise Missing(f"There is no folder {place.path}.")


Step = Callable[[int, bytes, int, bytes, Parts], None]


def _check(source: int, name: bytes, target: int, new_name: bytes, parts: Parts) -> None:
    ours, theirs = _mode(source, name), _mode(target, new_name)
    if theirs == 0:
        return
    if stat.S_ISDIR(ours) != stat.S_ISDIR(theirs):
        shown = ascii(b"/".join((*parts, new_name)))[2:-1]
        what = (
            "a folder would replace a file"
            if stat.S_ISDIR(ours)
            else "a file would replace a folder"
        )
        raise Refused(f"Nothing was copied: {what}.", details=shown)
    if stat.S_ISDIR(ours):
        with _both(source, name, target, new_name) as (inner, new_inner):
            _join(inner, new_inner, parts, _check)


def _move(kept: set[Parts]) -> Step:
    def move(source: int, name: bytes, target: int, new_name: bytes, parts: Parts) -> None:
        if not stat.S_ISDIR(_mode(target, new_name)):
            os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
            return
        kept.add(parts)
        with _both(source, name, target, new_name) as (inner, new_inner):
            _join(inner, new_inner, parts, move)

    return move


def _join(source: int, target: int, parts: Parts, step: Step) -> None:
    for entry in map(os.fsencode, os.listdir(source)):
        step(source, entry, target, entry, (*parts, entry))


@contextmanager
def _both(source: int, name: bytes, target: int, new_name: bytes) -> Iterator[tuple[int, int]]:
    inner = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=source)
    try:
        new_inner = os.open(new_name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=target)
        try:
            yield inner, new_inner
        finally:
            os.close(new_inner)
    finally:
        os.close(inner)


def _mode(directory: int, name: bytes) -> int:
    """The mode of an entry, never a link's target; 0: there is none."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0
