"""Read-only filesystem images, made without root by the distribution's own programs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from reconciler.linux.process import find_program, require_program, run

_TIMEOUT_SECONDS = 3600.0
_SQUASHFS_PACKAGE = "squashfs-tools"
_NO_UUID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class FilesystemImage:
    """A filesystem in a file; `fstype` is what mount(2) calls it."""

    path: Path
    fstype: str


def tree_program() -> Path:
    """The program that makes an image of a tree.

    Raises Missing when the host has neither erofs-utils nor squashfs-tools.
    """
    found = find_program("mkfs.erofs") or find_program("mksquashfs")
    return found or require_program("mkfs.erofs", "erofs-utils")


def make_from_tree(
    tree: Path, directory: Path, *, timeout_seconds: float = _TIMEOUT_SECONDS
) -> FilesystemImage:
    """Make an image in `directory` of `tree`, a directory of ours, all of it owned by root.

    Raises CommandFailed, and Missing as tree_program does.
    """
    program = tree_program()
    if program.name == "mksquashfs":
        return _squashfs_from_tree(program, tree, directory, timeout_seconds)
    image = FilesystemImage(directory / "root.erofs", "erofs")
    options = ["-zlz4", "-T0", f"-U{_NO_UUID}", "-x-1", "--all-root", "--quiet"]
    argv: list[str | Path] = [program, *options, image.path, tree]
    run(argv, timeout_seconds=timeout_seconds)
    return image


def make_from_tar(
    write: Callable[[BinaryIO], None], newest_mtime: int, directory: Path
) -> FilesystemImage:
    """Make an image in `directory` of the tar stream that `write` writes; owners are kept.

    `newest_mtime` is the latest in the stream. No file of it becomes one of the host's. Raises
    what `write` raises, CommandFailed, and Missing without squashfs-tools (4.5 or later).
    """
    image = FilesystemImage(directory / "root.squashfs", "squashfs")
    # lz4 like erofs: the guest may be emulated, where decompression is what costs.
    options = ["-comp", "lz4", "-no-progress", "-quiet", "-exit-on-error", *_processors()]
    argv: list[str | Path] = [require_program("sqfstar", _SQUASHFS_PACKAGE), *options]
    # The root directory is in no tar stream that sqfstar takes. It gets its owner from the caller,
    # who is root in a user namespace, and the time of now, which this variable cuts.
    argv += ["-root-mode", "0755", image.path]
    if os.geteuid() != 0:
        argv = [require_program("unshare", "util-linux"), "--user", "--map-root-user", *argv]
    env = {"SOURCE_DATE_EPOCH": str(newest_mtime)}
    reading, writing = os.pipe()
    producer = _Producer(write, writing)
    producer.start()
    try:
        run(argv, stdin=reading, timeout_seconds=_TIMEOUT_SECONDS, env=env)
    finally:
        # With the last reader gone a producer that still writes gets EPIPE.
        os.close(reading)
        producer.join()
        if producer.error is not None:
            raise producer.error
    return image


def _squashfs_from_tree(
    program: Path, tree: Path, directory: Path, timeout_seconds: float
) -> FilesystemImage:
    image = FilesystemImage(directory / "root.squashfs", "squashfs")
    options = ["-comp", "lz4", "-all-root", "-all-time", "0", "-mkfs-time", "0", "-no-xattrs"]
    argv: list[str | Path] = [program, tree, image.path, *options, "-quiet", "-no-progress"]
    run([*argv, *_processors()], timeout_seconds=timeout_seconds)
    return image


def _processors() -> list[str]:
    return ["-processors", str(len(os.sched_getaffinity(0)))]


class _Producer(threading.Thread):
    """Writes the stream while the program reads it; `error` is what `write` raised.

    The program takes half a stream for a whole one, so its image counts only without an error.
    """

    def __init__(self, write: Callable[[BinaryIO], None], fd: int) -> None:
        super().__init__(name="tar stream")
        self.error: BaseException | None = None
        self._write = write
        self._fd = fd

    def run(self) -> None:
        try:
            with os.fdopen(self._fd, "wb", buffering=1 << 20) as stream:
                self._write(stream)
        except BrokenPipeError:
            return  # the program ended first, and its status says why
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            self.error = error
