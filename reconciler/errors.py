"""The one kind of error a user meets: what happened, details, and what to do next."""

from __future__ import annotations

import errno

from reconciler.codes import Code


class BoxError(Exception):
    """A failure that is told to the user without a traceback.

    `brief` is one sentence, `details` the evidence (a command's stderr, a path, a value), `hint`
    what to do next, as a command where there is one. Surfaces map `exit_code` to the process's
    exit status: 125 means that box itself failed, whatever the command in the sandbox did. `code`
    is the word that programs are told.
    """

    exit_code = 125
    code = Code.FAILED

    def __init__(self, brief: str, *, details: str | None = None, hint: str | None = None) -> None:
        super().__init__(brief)
        self.brief = brief
        self.details = details
        self.hint = hint

    def __str__(self) -> str:
        """The whole message, as a terminal shows it."""
        lines = [self.brief]
        if self.details:
            lines.extend("  " + line for line in self.details.rstrip().splitlines())
        if self.hint:
            lines.append("hint: " + self.hint)
        return "\n".join(lines)


class Refused(BoxError):
    """Box could do it, but will not: the request breaks a rule."""

    code = Code.REFUSED


class Missing(BoxError):
    """Something the host must provide is not there (a program, a kernel, an ID range)."""

    code = Code.UNAVAILABLE


class NotFound(Missing):
    """There is no sandbox of that name, or no such file in it."""

    code = Code.NOT_FOUND


class NotRunning(Missing):
    """The sandbox has no VM that is up."""

    code = Code.NOT_RUNNING


class Frozen(BoxError):
    """The sandbox's VM stands still: for a look, until a person decides; or for want of space."""

    code = Code.FROZEN


class Busy(BoxError):
    """Somebody else holds what is needed; trying later may work."""

    code = Code.BUSY


class DataHeld(Busy):
    """Another VM of the sandbox has its /data."""

    code = Code.DATA_HELD


class NotConfined(BoxError):
    """The VMM is not held to what the sandbox was promised; it was ended."""

    code = Code.NOT_CONFINED


class GuestFailed(BoxError):
    """The guest or its agent went away, was silent, or broke the rules."""

    code = Code.GUEST_FAILED


class TimedOut(BoxError):
    """It took longer than it was given."""

    code = Code.TIMED_OUT


class NotAFile(Refused):
    """What is there is no regular file."""

    code = Code.NOT_A_FILE


class TooLarge(Refused):
    """It has more bytes than the limit that was given."""

    code = Code.TOO_LARGE


class FileRefused(BoxError):
    """The guest's kernel refused to read or write a file; `details` is what it said."""

    code = Code.FILE_REFUSED


def as_box_error(error: Exception) -> BoxError:
    """The error itself if it is one; else what the kernel refused, and of which file."""
    if isinstance(error, BoxError):
        return error
    if not isinstance(error, OSError) or error.strerror is None:
        return BoxError(f"{type(error).__name__}: {error}")
    place = f"{error.filename}: " if error.filename else ""
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    return BoxError(f"{place}{error.strerror}", hint="free some disk space" if full else None)
