"""Carrying out one command in a VM, its output kept in bounded memory."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from reconciler.engine import command_log, commands, contact
from reconciler.errors import as_box_error
from reconciler.guest import channel
from reconciler.guest.capture import Capture
from reconciler.surfaces.sdk import given
from reconciler.surfaces.sdk.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from reconciler.engine.contact import Contact
    from reconciler.guest.protocol import Exit


def carry_out(
    home: Path,
    vm: Contact,
    verb: str,
    command: given.Command,
    stdin: bytes | given.Open | None,
    limit_bytes: int,
) -> Result:
    """Run `command` to its end; keep at most `limit_bytes` of either stream, half of each end."""
    request = command.request(vm)
    stdout, stderr = kept(limit_bytes), kept(limit_bytes)
    with (
        given.descriptor(stdin) as source,
        contact.answering(vm),
        channel.claim_port(vm.directory) as sock,
        channel.Session(sock, vm.token) as session,
        command_log.noted(home, vm, verb, request) as entry,
    ):
        began = time.monotonic()
        end = session.carry_out(request, stdin=source, stdout=stdout, stderr=stderr)
        entry.ended(end, stdout.total, stderr.total)
        return result(end, since(began), stdout, stderr)


def since(began: float) -> int:
    """Milliseconds since a time of time.monotonic()."""
    return round((time.monotonic() - began) * 1000)


def kept(limit_bytes: int) -> Capture:
    """What keeps the beginning and the end of a stream."""
    head = (limit_bytes + 1) // 2
    return Capture(head, limit_bytes - head)


def result(end: Exit, duration_ms: int, stdout: Capture, stderr: Capture) -> Result:
    """What a caller is told of a command that has ended."""
    return Result(
        exit_code=commands.exit_code(end),
        signal=commands.signal_name(end),
        timed_out=end.timed_out,
        duration_ms=duration_ms,
        truncated=end.truncated or bool(stdout.gap) or bool(stderr.gap),
        stdout=stdout.data,
        stderr=stderr.data,
        stdout_bytes=stdout.total,
        stderr_bytes=stderr.total,
    )


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Make what the host's kernel refuses us an error of ours."""
    try:
        yield
    except OSError as error:
        raise as_box_error(error) from error
