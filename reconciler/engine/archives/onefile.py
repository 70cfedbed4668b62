"""One regular file of a running VM, read or written: an archive that holds nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from reconciler.engine import command_log, commands, contact
from reconciler.engine.archives import pipes
from reconciler.engine.contact import Contact
from reconciler.errors import (
    BoxError,
    FileRefused,
    GuestFailed,
    NotAFile,
    NotFound,
    Refused,
    TimedOut,
    TooLarge,
)
from reconciler.guest import channel, protocol
from reconciler.guest.capture import Capture
from reconciler.images.tar import BadArchive, Header, Kind, members, padding
from reconciler.images.tarwriter import END, encode
from reconciler.linux import files

_COPY_BYTES = 1 << 18
_SAID_BYTES = 4096

# What the agent's programs say last: its C library's words for errno, and its own.
_KINDS: dict[str, tuple[type[BoxError], str]] = {
    "No such file or directory": (NotFound, "is not there"),
    "Not a directory": (NotFound, "leads through something that is no folder"),
    "Is a directory": (NotAFile, "is a folder"),
    "it is neither a file nor a directory": (NotAFile, "is neither a file nor a folder"),
}


class Readable(Protocol):
    """Something that gives bytes: at most `size`, b"" only at its end."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes."""


def take(
    home: Path,
    vm: Contact,
    path: str,
    put: Callable[[bytes], object],
    *,
    limit_bytes: int,
    user: str | None = None,
    timeout_ms: int | None = None,
) -> int:
    """Give `put` the contents of a file, piece by piece, from a thread; return how many bytes.

    A link at `path` is followed. Raises NotFound, NotAFile, TooLarge before any data, FileRefused,
    TimedOut, and GuestFailed when what the guest sends is not one whole file: some of it may have
    been given by then. Raises what `put` raises.
    """
    taking = _Taking(path, put, limit_bytes)
    end, said = _move(home, vm, pipes.read_output, ("send", path), taking.work, user, timeout_ms)
    if taking.verdict is not None:
        # A folder may also hold what cannot be read, of which nobody asked.
        raise taking.verdict
    _check(end, said, path)
    return taking.size


def give(
    home: Path,
    vm: Contact,
    path: str,
    source: Readable,
    *,
    size: int,
    mode: int,
    user: str | None = None,
    timeout_ms: int | None = None,
) -> None:
    """Make a file of the `size` bytes that `source` gives, read from a thread, with mode 0oNNN.

    What is at `path` is replaced, a link by a file, but a folder is not. It is not done at once:
    who looks meanwhile may find no file or part of one, and a failure may leave that. Raises
    NotFound when there is no folder for it, NotAFile, FileRefused, TimedOut, GuestFailed; Refused
    when `source` ends before; and what it raises.
    """
    folder, name = _split(path)
    header = Header(name, Kind.FILE, mode & 0o777, mtime=int(time.time()), size=size)

    def work(fd: int) -> None:
        files.write_all(fd, encode(header))
        _pour(source, size, fd)
        files.write_all(fd, b"\0" * padding(size) + END)

    end, said = _move(home, vm, pipes.write_input, ("receive", folder), work, user, timeout_ms)
    _check(end, said, path)


class _Taking:
    def __init__(self, path: str, put: Callable[[bytes], object], limit_bytes: int) -> None:
        self._path = path
        self._put = put
        self._limit_bytes = limit_bytes
        self.size = 0
        self.verdict: BoxError | None = None

    def work(self, fd: int) -> None:
        try:
            self._take(pipes.Stream(fd))
        except BadArchive as error:
            raise GuestFailed("The guest did not send a whole file.", details=str(error)) from error

    def _take(self, stream: pipes.Stream) -> None:
        found = members(stream)
        header = next(found, None)
        if header is None:
            raise BadArchive("the archive is empty")
        self.verdict = self._judge(header)
        if self.verdict is not None:
            raise self.verdict
        while self.size < header.size:
            data = stream.read(min(header.size - self.size, _COPY_BYTES))
            if not data:
                raise BadArchive("the archive is cut short")
            self._put(data)
            self.size += len(data)
        stream.skip(padding(header.size))
        if next(found, None) is not None:
            raise BadArchive("the archive holds more than one thing")
        stream.finish()

    def _judge(self, header: Header) -> BoxError | None:
        if header.kind is Kind.DIRECTORY:
            return NotAFile(f"{self._path!a} is a folder.", hint="box cp copies folders")
        if header.kind is not Kind.FILE:
            raise BadArchive("the archive does not begin with a file")
        if header.size > self._limit_bytes:
            brief = f"{self._path!a} has {header.size} bytes, and the limit is {self._limit_bytes}."
            return TooLarge(brief)
        return None


def _split(path: str) -> tuple[str, bytes]:
    folder, _, name = path.rpartition("/")
    if name in ("", ".", ".."):
        raise NotAFile(f"{path!a} names a folder.")
    root = "/" if path.startswith("/") else "./"
    # A slash at its end: it has to be a folder that is there.
    return f"{folder}/" if folder else root, os.fsencode(name)


def _pour(source: Readable, size: int, fd: int) -> None:
    left = size
    while left > 0:
        data = source.read(min(left, _COPY_BYTES))
        if not data:
            raise Refused("What was to be written became shorter meanwhile.")
        files.write_all(fd, data)
        left -= len(data)


def _move(
    home: Path,
    vm: Contact,
    move: Callable[..., protocol.Exit],
    argv: tuple[str, str],
    work: Callable[[int], None],
    user: str | None,
    timeout_ms: int | None,
) -> tuple[protocol.Exit, str]:
    request = commands.request(vm, argv, user=user, timeout_ms=timeout_ms, kind=protocol.OWN)
    said = Capture(_SAID_BYTES, 0)
    with (
        contact.answering(vm),
        channel.claim_port(vm.directory) as sock,
        channel.Session(sock, vm.token) as session,
        command_log.noted(home, vm, "cp", request) as entry,
    ):
        end = move(session, request, said, work)
        entry.ended(end)
    text = said.data.decode(errors="backslashreplace").strip()
    return end, "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _check(end: protocol.Exit, said: str, path: str) -> None:
    """Raise what the guest's side says, if it is not that all is well."""
    if end.timed_out:
        raise TimedOut(f"It took too long to move {path!a}.")
    if end.signo:
        raise GuestFailed(f"What moves files in the guest was ended by signal {end.signo}.")
    if end.code == 0:
        return
    for reason, (kind, brief) in _KINDS.items():
        if said.endswith(f": {reason}"):
            raise kind(f"{path!a} {brief}.", details=said)
    raise FileRefused(f"The guest refused {path!a}.", details=said or f"status {end.code}")
