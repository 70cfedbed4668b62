"""The ext4 disk behind /data on the backends that have disks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from reconciler.codes import Code
from reconciler.errors import BoxError, DataHeld, Refused
from reconciler.linux import plain

_MAKE_SECONDS = 120.0
_F_OFD_GETLK = 36  # include/uapi/asm-generic/fcntl.h
_RESERVE_BYTES = 64 << 20
"""Room that has to be left on the host after a new disk's own structures are written."""


class NoRoom(BoxError):
    """The host's file system cannot hold what would be made."""

    code = Code.NO_ROOM


def ensure_disk(path: Path, size_bytes: int) -> None:
    """Make the disk image `path` unless it is there; an existing one is never touched.

    Sparse, and exactly `size_bytes`: what does not fit is refused by the guest's own kernel. Killed
    half-way, or on a full disk, there is no disk rather than half of one. Raises NoRoom, Missing,
    CommandFailed; Refused when there is a disk of another size.
    """
    if size_of(path) is not None:
        _check_size(path, size_bytes)
        return
    # What only this needs: a `run` that takes a waiting VM comes by here to see that /data is free.
    import shutil

    from reconciler.linux import files, process

    if shutil.disk_usage(path.parent).free < _RESERVE_BYTES:
        raise NoRoom(f"No room for a /data disk in {path.parent}.", hint="free some disk space")
    program = process.require_program("mke2fs", "e2fsprogs")
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    try:
        _make(program, temporary, size_bytes)
        # A hard link rather than a rename: it never replaces a disk that somebody else made first.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path, follow_symlinks=False)
        files.sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
    _check_size(path, size_bytes)


def size_of(path: Path) -> int | None:
    """The size of a disk in bytes; None when there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def resize_refusal(found: int, wanted: int) -> Refused:
    """Why a disk of `found` bytes cannot become one of `wanted` bytes."""
    from reconciler.boxfile import sizes

    change = "shrink" if wanted < found else "grow"
    away = "move the disk away to start with an empty one"
    with contextlib.suppress(ValueError):
        away = f"set `data_size: {sizes.format_size(found)}` again, or {away}"
    return Refused(
        f"The /data disk has {found} bytes, the Boxfile asks for {wanted}.",
        details=f"box cannot {change} a disk yet",
        hint=away,
    )


def _make(program: Path, path: Path, size_bytes: int) -> None:
    from reconciler.linux import process

    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        os.ftruncate(fd, size_bytes)
        # The file is empty and ours: no guest has written to it yet.
        argv: list[str | Path] = [program, "-q", "-F", "-t", "ext4", "-m", "0", "-L", "data"]
        argv += ["-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0", path]
        process.run(argv, timeout_seconds=_MAKE_SECONDS)
        os.fsync(fd)
    finally:
        os.close(fd)


def _check_size(path: Path, wanted: int) -> None:
    found = size_of(path)
    if found is not None and found != wanted:
        raise resize_refusal(found, wanted)


class DiskHeld(DataHeld):
    """Another VM has the disk."""


def check_free(fd: int, path: Path) -> None:
    """See that no VM has the disk open at `fd`. Raises DiskHeld.

    QEMU keeps byte-range locks on its images for as long as it lives (block/file-posix.c), so a
    lock whose VM is gone is gone. Only a look: QEMU itself refuses a disk that was taken since.
    """
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    found = struct.unpack("hhqqi4x", fcntl.fcntl(fd, _F_OFD_GETLK, wanted))
    if found[0] != fcntl.F_UNLCK:
        raise DiskHeld(
            "Another VM of this sandbox has /data.",
            details=str(path),
            hint="`box exec` runs commands in the VM that is up, `box run --no-data` without /data",
        )


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    """The disk open for a VM: read-write, a regular file of ours, no link followed."""
    fd = plain.open_plain(path, os.O_RDWR)
    try:
        yield fd
    finally:
        os.close(fd)
