"""A command for a VM: what its caller says, else what the Boxfile and the image say; its end."""

from __future__ import annotations

import signal
from types import MappingProxyType
from typing import TYPE_CHECKING

from reconciler.guest.protocol import PROGRAM, Exec, Exit, Limit, Size, exit_status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.engine.contact import Contact

TIMED_OUT = 124
_FIRST_REALTIME = 34


def request(
    vm: Contact,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] = MappingProxyType({}),
    cwd: str | None = None,
    user: str | None = None,
    timeout_ms: int | None = None,
    tty: Size | None = None,
    rlimits: Sequence[Limit] = (),
    kind: int = PROGRAM,
) -> Exec:
    """What the guest's agent is asked for. None is the sandbox's own value, timeout 0 no limit."""
    return Exec(
        argv,
        {**vm.env, **env},
        cwd=vm.working_dir if cwd is None else cwd,
        user=vm.user if user is None else user,
        timeout_ms=vm.timeout_seconds * 1000 if timeout_ms is None else timeout_ms,
        tty=tty,
        rlimits=rlimits,
        kind=kind,
    )


def exit_code(end: Exit) -> int:
    """The exit status that box gives for a command: 124 when the time limit ended it."""
    return TIMED_OUT if end.timed_out else exit_status(end)


def signal_name(end: Exit) -> str | None:
    """The signal that ended a command, as kill(1) names it; None when it ended by itself."""
    if not end.signo:
        return None
    if end.signo > _FIRST_REALTIME:
        return f"SIGRTMIN+{end.signo - _FIRST_REALTIME}"
    try:
        return signal.Signals(end.signo).name
    except ValueError:
        return f"SIG{end.signo}"
