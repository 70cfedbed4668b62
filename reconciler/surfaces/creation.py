"""A new file in somebody's folder: whole or not at all, and never in place of another."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from reconciler.boxfile.names import INNER_NAME, SUFFIX
from reconciler.boxfile.problems import printable
from reconciler.errors import Missing, Refused
from reconciler.linux import files

SCHEMA_NAME = ".boxfile.schema.json"
"""Hidden, so that no scan takes it for anything."""

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO without it waits for a writer.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC


def new_boxfile(folder: Path, name: str, text: str, schema: str, *, make_folder: bool) -> Path:
    """Write NAME.Boxfile, with the schema beside it for editors; return its path.

    Raises Refused when the sandbox has a file there, Missing when there is no folder and none is to
    be made, and OSError; then nothing is there that was not.
    """
    path, beside = folder / f"{name}{SUFFIX}", folder / SCHEMA_NAME
    with contextlib.ExitStack() as undo:
        _ensure_folder(folder, undo, make=make_folder)
        for taken in (path, folder / name / INNER_NAME):
            if os.path.lexists(taken):
                raise _exists(taken)
        # All that takes room is written before anything can be seen.
        draft = undo.enter_context(_draft(path, text.encode()))
        if not _holds(beside, schema.encode()):
            # Not taken back: another `box new` may rely on it by now.
            undo.enter_context(_draft(beside, schema.encode())).replace(beside)
        try:
            # link(2), unlike rename(2), never replaces what is there.
            os.link(draft, path, follow_symlinks=False)
        except FileExistsError as error:
            raise _exists(path) from error
        files.sync_directory(folder)
    return path


@contextlib.contextmanager
def _draft(path: Path, data: bytes) -> Iterator[Path]:
    """A hidden file with this content, in the folder of `path`; gone at the end."""
    draft = path.with_name(f".{path.name.removeprefix('.')}.{secrets.token_hex(8)}.tmp")
    fd = os.open(draft, _CREATE, 0o666)
    try:
        try:
            files.write_all(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _ensure_folder(folder: Path, undo: contextlib.ExitStack, *, make: bool) -> None:
    if folder.is_dir():
        return
    if os.path.lexists(folder):
        raise Refused(f"{printable(str(folder))} is no folder.", hint="name another with --dir")
    if not make:
        raise Missing(
            f"There is no folder {printable(str(folder))}.",
            hint="make it, or leave --dir out for ./desired",
        )
    folder.mkdir(exist_ok=True)
    undo.callback(_remove_if_empty, folder)


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):
        folder.rmdir()


def _holds(path: Path, data: bytes) -> bool:
    """Whether a regular file with just this content is there."""
    try:
        fd = os.open(path, _READ)
    except OSError:
        return False
    try:
        facts = os.fstat(fd)
        # Read at once: a regular file gives all it has.
        same = stat.S_ISREG(facts.st_mode) and facts.st_size == len(data)
        return same and os.read(fd, len(data) + 1) == data
    finally:
        os.close(fd)


def _exists(path: Path) -> Refused:
    return Refused(
        f"{printable(str(path))} is there already; it was left as it is.",
        hint="choose another name, or edit that file",
    )
