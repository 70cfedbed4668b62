"""The one kind of error a user meets: what happened, details, and what to do next."""

from __future__ import annotations


class BoxError(Exception):
    """A failure that is told to the user without a traceback.

    `brief` is one sentence, `details` the evidence (a command's stderr, a path, a value), `hint`
    what to do next, as a command where there is one. Surfaces map `exit_code` to the process's
    exit status: 125 means that box itself failed, whatever the command in the sandbox did.
    """

    exit_code = 125

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


class Missing(BoxError):
    """Something the host must provide is not there (a program, a kernel, an ID range)."""


class Busy(BoxError):
    """Somebody else holds what is needed; trying later may work."""
