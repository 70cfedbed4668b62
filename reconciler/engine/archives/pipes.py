"""A stream between a command of the guest and a thread of ours that makes or reads it."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

from reconciler.guest.channel import Session
from reconciler.guest.protocol import Exec, Exit
from reconciler.guest.transfer import Target
from reconciler.images.tar import BadArchive

_PIECE_BYTES = 1 << 18
# Behind the end of an archive tar fills up a record of 10 KiB, or of what it was told.
_TRAILER_LIMIT_BYTES = 1 << 20


class Stream:
    """An open file read to its end, in order (a `Source` of tar's).

    When nobody reads at `output` any more, reading ends with BrokenPipeError rather than wait for
    input that nobody wants.
    """

    def __init__(self, fd: int, output: int | None = None) -> None:
        self._fd = fd
        self._output = output

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes, less only at the end."""
        parts = []
        while size > 0 and (data := self._some(min(size, _PIECE_BYTES))):
            parts.append(data)
            size -= len(data)
        return b"".join(parts)

    def skip(self, size: int) -> None:
        """Pass over `size` bytes. Raises BadArchive when there are fewer."""
        while size > 0:
            got = len(self.read(min(size, _PIECE_BYTES)))
            if not got:
                raise BadArchive("the archive is cut short")
            size -= got

    def finish(self) -> None:
        """Read what stands behind the archive's end. Raises BadArchive when it goes on and on."""
        left = _TRAILER_LIMIT_BYTES
        while data := self._some(_PIECE_BYTES):
            left -= len(data)
            if left < 0:
                raise BadArchive("the archive goes on behind its end")

    def _some(self, size: int) -> bytes:
        if self._output is not None:
            poller = select.poll()
            poller.register(self._fd, select.POLLIN)
            poller.register(self._output, 0)
            if any(fd == self._output for fd, _ in poller.poll()):
                raise BrokenPipeError
        return os.read(self._fd, size)


class _Worker(threading.Thread):
    """Does `work` with one end of a pipe, and closes that end."""

    def __init__(self, work: Callable[[int], None], fd: int) -> None:
        super().__init__()
        self._work = work
        self._fd = fd
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._work(self._fd)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for this one
            self.error = error
        finally:
            os.close(self._fd)


def read_output(
    session: Session, request: Exec, stderr: Target, work: Callable[[int], None]
) -> Exit:
    """Run a command whose output `work` reads from a pipe; return how it ended.

    Raises what `work` raised, unless the command failed: then the output is not whole, and the
    command says why.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    worker = _Worker(work, reading)
    worker.start()
    try:
        end = session.carry_out(request, stdin=None, stdout=writing, stderr=stderr)
    except BrokenPipeError:
        end = None
    finally:
        os.close(writing)
        worker.join()
    if worker.error is not None and (end is None or _succeeded(end)):
        raise worker.error
    if end is None:
        raise BrokenPipeError
    return end


def write_input(
    session: Session, request: Exec, stderr: Target, work: Callable[[int], None]
) -> Exit:
    """Run a command whose input `work` writes to a pipe; return how it ended.

    Raises what `work` raised, unless it was only that the command took no more.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    worker = _Worker(work, writing)
    worker.start()
    try:
        end = session.carry_out(request, stdin=reading, stdout=lambda _: None, stderr=stderr)
    finally:
        os.close(reading)
        worker.join()
    if worker.error is not None and not isinstance(worker.error, BrokenPipeError):
        raise worker.error
    return end


def _succeeded(end: Exit) -> bool:
    return end.code == 0
