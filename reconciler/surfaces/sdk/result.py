"""How a command in a sandbox ended, and what it wrote."""

from __future__ import annotations

from typing import NamedTuple

from reconciler.codes import Code
from reconciler.errors import BoxError

_SHOWN_BYTES = 2048


class CommandFailed(BoxError):
    """A command did not succeed; `result` tells how, `details` is the end of its stderr."""

    code = Code.COMMAND_FAILED

    def __init__(self, result: Result) -> None:
        end = result.stderr[-_SHOWN_BYTES:].decode(errors="backslashreplace").strip()
        super().__init__(f"The command {_ending(result)}.", details=_printable(end) or None)
        self.result = result


class Result(NamedTuple):
    """The end of one command.

    `exit_code` is what a shell would report: the command's own, 0 to 255; 124 when it took too
    long; 126 or 127 when it cannot be executed or is not there; 128 + n when signal n ended it,
    whose name is `signal` ("SIGKILL"; None when it ended by itself). `duration_ms` is from the
    request to the end of the output, by this host's clock. `stdout` and `stderr` hold at most what
    was asked for, the beginning and the end; `stdout_bytes` and `stderr_bytes` count all that was
    written. `truncated`: some output is missing, cut here, or in the guest because a process that
    the command left behind still had it open.
    """

    exit_code: int
    signal: str | None
    timed_out: bool
    duration_ms: int
    truncated: bool
    stdout: bytes
    stderr: bytes
    stdout_bytes: int
    stderr_bytes: int

    @property
    def ok(self) -> bool:
        """Whether it succeeded: exit status 0."""
        return self.exit_code == 0

    @property
    def text(self) -> str:
        """`stdout` as UTF-8; what is not becomes U+FFFD."""
        return self.stdout.decode(errors="replace")

    @property
    def error_text(self) -> str:
        """`stderr` as UTF-8; what is not becomes U+FFFD."""
        return self.stderr.decode(errors="replace")

    def check(self) -> Result:
        """Return itself. Raises CommandFailed unless the exit status is 0."""
        if not self.ok:
            raise CommandFailed(self)
        return self


def _ending(result: Result) -> str:
    if result.timed_out:
        return "took too long and was ended"
    if result.signal is not None:
        return f"was ended by {result.signal}"
    return f"failed with status {result.exit_code}"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
