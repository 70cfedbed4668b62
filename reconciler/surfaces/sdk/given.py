"""What a caller gives for a command or a file: checked, and turned into what the engine takes."""

from __future__ import annotations

import contextlib
import io
import math
import os
from typing import TYPE_CHECKING, NamedTuple, Protocol

from reconciler.errors import Refused, TooLarge
from reconciler.linux import files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from reconciler.engine.contact import Contact
    from reconciler.guest.protocol import Exec

_LONGEST_SECONDS = 2_592_000
_COPY_BYTES = 1 << 18


class Open(Protocol):
    """A file, pipe or socket of the host that has a descriptor."""

    def fileno(self) -> int:
        """Return the descriptor."""


class Readable(Protocol):
    """A file of bytes that is open for reading."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most `size`; b"" only at its end."""


Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class Command(NamedTuple):
    """A command, for whatever VM. None is the sandbox's own value."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    user: str | None
    timeout_ms: int | None

    def request(self, vm: Contact) -> Exec:
        """The same for one VM."""
        from reconciler.engine import commands

        return commands.request(
            vm,
            self.argv,
            env=self.env,
            cwd=self.cwd,
            user=self.user,
            timeout_ms=self.timeout_ms,
        )


def command(
    argv: Sequence[str],
    env: Mapping[str, str] | None,
    cwd: Path | None,
    user: str | None,
    timeout: float | None,
) -> Command:
    """See that the guest can be asked for it, before anything is started. Raises Refused."""
    from reconciler.guest import protocol

    if isinstance(argv, str | bytes):
        raise TypeError("a command is a list of words, not one text: no shell takes it apart")
    words = tuple(argv)
    found = Command(
        words, dict(env or {}), None if cwd is None else path(cwd), user, timeout_ms(timeout)
    )
    protocol.encode_exec(protocol.Exec(words, found.env, found.cwd or "", user or ""))
    return found


def path(given: Path) -> str:
    """A path of the guest's; bytes that are no UTF-8 are kept as Python keeps them."""
    return os.fsdecode(given)


def timeout_ms(seconds: float | None) -> int | None:
    """A time limit in milliseconds; None is the sandbox's, 0 none at all. Raises Refused."""
    if seconds is None:
        return None
    if not 0 <= seconds <= _LONGEST_SECONDS:
        raise Refused(f"A timeout is 0 to {_LONGEST_SECONDS} seconds, not {seconds!r}.")
    # Rounded up: 0 would be no limit at all.
    return math.ceil(seconds * 1000)


def checked_limit(limit_bytes: int) -> int:
    """A limit on how many bytes are kept or taken, 0 or more. Raises Refused."""
    if limit_bytes < 0:
        raise Refused(f"A limit is 0 bytes or more, not {limit_bytes!r}.")
    return limit_bytes


@contextlib.contextmanager
def descriptor(stdin: bytes | Open | None) -> Iterator[int | None]:
    """A descriptor to read a command's input from; None is an empty input."""
    if stdin is None:
        yield None
        return
    if not isinstance(stdin, bytes | bytearray | memoryview):
        yield stdin.fileno()
        return
    # A file in memory: it is read as the command reads, by nobody who could wait for it.
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    try:
        files.write_all(fd, stdin)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def measured(data: bytes | Readable, limit_bytes: int | None) -> Iterator[tuple[Readable, int]]:
    """A source and how many bytes it will give; what has no size is first kept in a file of ours.

    Raises TooLarge, Refused.
    """
    if limit_bytes is not None:
        checked_limit(limit_bytes)
    if isinstance(data, bytes | bytearray | memoryview):
        with io.BytesIO(data) as held:
            yield held, _within(len(held.getbuffer()), limit_bytes)
    elif isinstance(data, str) or not hasattr(data, "read"):
        raise TypeError("what is written is bytes, or a file that is open for reading bytes")
    elif (size := _size_left(data)) is not None:
        yield data, _within(size, limit_bytes)
    else:
        import tempfile

        with tempfile.TemporaryFile() as kept:
            size = 0
            while piece := data.read(_COPY_BYTES):
                size = _within(size + len(piece), limit_bytes)
                kept.write(piece)
            kept.seek(0)
            yield kept, size


def _size_left(data: Readable) -> int | None:
    """How many bytes there are from where it stands; None when it cannot be told."""
    seek, tell = getattr(data, "seek", None), getattr(data, "tell", None)
    if seek is None or tell is None:
        return None
    try:
        here = tell()
        size = seek(0, os.SEEK_END) - here
        seek(here)
    except (OSError, ValueError):
        return None
    return int(max(0, size))


def _within(size: int, limit_bytes: int | None) -> int:
    if limit_bytes is not None and size > limit_bytes:
        raise TooLarge(f"There are more than {limit_bytes} bytes to be written.")
    return size
