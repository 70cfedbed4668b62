"""A command for a VM: what its caller says, else what the Boxfile and the image say."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from reconciler.guest.protocol import PROGRAM, Exec, Limit, Size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reconciler.engine.contact import Contact


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
