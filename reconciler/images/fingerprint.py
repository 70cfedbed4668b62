"""Digests of files that are read once, and what a dynamic program loads besides itself."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reconciler.errors import BoxError
from reconciler.images.elf import interpreter
from reconciler.linux.files import BrokenFile, locked, read_json, write_json
from reconciler.linux.process import run

_CACHE = "digests.json"
_CACHE_ENTRIES = 512
# A change so soon after another may leave the same time stamp: the kernel's clock ticks at 100 Hz
# or more, so a file this fresh is hashed again next time.
_TICK_NS = 20_000_000
_LOADER_SECONDS = 20.0
_MOST_BYTES = 1 << 30  # kernels, programs and their libraries have some 100 MB


def file_digest(home: Path, path: Path) -> str:
    """Return the SHA-256 of the file `path` as hex; see `file_digests`."""
    return file_digests(home, (path,))[path]


def file_digests(home: Path, paths: Iterable[Path]) -> dict[Path, str]:
    """Return the SHA-256 of every file, by path.

    A file is read only when its (dev, ino, size, mtime, ctime) are not those of last time: the
    ctime changes with every write and cannot be set. Raises OSError, and BoxError for what is no
    regular file.
    """
    cache_path = home / _CACHE
    cache = _read_cache(cache_path)
    digests: dict[Path, str] = {}
    fresh: dict[str, str] = {}
    for path in paths:
        known = cache.get(_identity(path.stat()))
        if known is None:
            key, known = _hash_path(path)
            if key is not None:
                fresh[key] = known
        digests[path] = known
    if fresh:
        _remember(cache_path, fresh)
    return digests


def open_file_digest(home: Path, fd: int) -> str:
    """The same of a regular file that is open at `fd`, whatever its path leads to by now.

    It is left at its start, where whoever gets the descriptor begins to read.
    """
    known = _read_cache(home / _CACHE).get(_identity(os.fstat(fd)))
    if known is None:
        key, known = _hash(fd)
        if key is not None:
            _remember(home / _CACHE, {key: known})
    return str(known)


def contents_digest(fd: int) -> str:
    """Return the SHA-256 of the open regular file `fd` as hex, read now; left at its start."""
    return _hash(fd)[1]


def library_closure(binary: Path, plugins: Iterable[Path] = ()) -> tuple[Path, ...]:
    """Return the ELF interpreter and shared libraries that `binary` and its `plugins` load.

    () when `binary` is static. The interpreter is run to tell (`ld.so --list`), so this is for the
    host's own files only; paths are as it opens them. The plugins themselves are not among them.
    Raises CommandFailed when a library is missing.
    """
    loader = interpreter(binary)
    if loader is None:
        return ()
    libraries = {loader}
    for path in (binary, *plugins):
        output = run([loader, "--list", path.absolute()], timeout_seconds=_LOADER_SECONDS).stdout
        libraries.update(_listed(output.decode(errors="surrogateescape")))
    return tuple(sorted(libraries))


def _listed(output: str) -> Iterable[Path]:
    for line in output.splitlines():
        path = line.strip().split(" => ")[-1].rsplit(" (0x", 1)[0]
        if path.startswith("/"):
            yield Path(path)


def _identity(facts: os.stat_result) -> str:
    numbers = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
    return ":".join(str(number) for number in numbers)


def _hash_path(path: Path) -> tuple[str | None, str]:
    # Non-blocking: a FIFO in the place of a file would wait for a writer.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            raise BoxError(f"{path} is not a regular file")
        if facts.st_size > _MOST_BYTES:
            raise BoxError(f"{path} is too large to be a part of a VM")
        return _hash(fd)
    finally:
        os.close(fd)


def _hash(fd: int) -> tuple[str | None, str]:
    """Return (key to remember it under, or None when it may still change unseen; the digest)."""
    before = os.fstat(fd)
    os.lseek(fd, 0, os.SEEK_SET)
    with os.fdopen(fd, "rb", buffering=0, closefd=False) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    os.lseek(fd, 0, os.SEEK_SET)
    after = os.fstat(fd)
    key = _identity(before)
    settled = time.time_ns() - after.st_ctime_ns > _TICK_NS
    return (key if settled and key == _identity(after) else None), digest


def _read_cache(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except (FileNotFoundError, BrokenFile):
        return {}


def _remember(path: Path, fresh: dict[str, str]) -> None:
    with locked(path.with_suffix(".lock")):
        known = list(_read_cache(path).items())
        room = max(0, _CACHE_ENTRIES - len(fresh))
        write_json(path, dict(known[max(0, len(known) - room) :]) | fresh)
