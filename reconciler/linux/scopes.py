"""Scopes: cgroups that a systemd makes for processes it did not start, root's or a user's own.

systemd sees that a scope has ended by its cgroup's file of events. A cgroup that we remove before
it has read that stays "active" for ever, and no scope of that name can be made again.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.linux import cgroups, process

if TYPE_CHECKING:
    from collections.abc import Sequence

_SUFFIX = ".scope"
_SETTLE_SECONDS = 2.0
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.005


def has_manager(uid: int) -> bool:
    """Whether a systemd makes cgroups for `uid`: the system's for root, else the user's own."""
    if uid == 0:
        return is_booted() and Path("/run/systemd/private").is_socket()
    return can_have_manager() and Path(f"/run/user/{uid}/bus").is_socket()


def can_have_manager() -> bool:
    """Whether a systemd of an ordinary user can set limits here: it may not with version 1."""
    return is_booted() and cgroups.detect().kind == "v2"


def is_booted() -> bool:
    """Whether systemd is the init here (sd_booted(3))."""
    return Path("/run/systemd/system").is_dir()


def manager_commands(user: str, uid: int) -> tuple[tuple[str, ...], ...]:
    """What root runs so that `user` has a systemd from now on, logged in or not."""
    # The second waits until it is up; later boots start it by themselves.
    return (("loginctl", "enable-linger", user), ("systemctl", "start", f"user@{uid}.service"))


def manager_cgroup(uid: int) -> str:
    """The cgroup below which the slices of the systemd for `uid` lie: "" for the system's."""
    return "" if uid == 0 else f"/user.slice/user-{uid}.slice/user@{uid}.service"


def manager_environment(uid: int) -> dict[str, str]:
    """The environment in which clients of D-Bus find the systemd for `uid`.

    Not that of our caller: su(1) leaves out what pam_systemd would set, and crun asks root's own
    user manager when root's login has set it.
    """
    if uid == 0:
        return {}
    directory = f"/run/user/{uid}"
    return {"XDG_RUNTIME_DIR": directory, "DBUS_SESSION_BUS_ADDRESS": f"unix:path={directory}/bus"}


def is_managed(uid: int, cgroup: bytes) -> bool:
    """Whether the process of this /proc/PID/cgroup is below the systemd for `uid`."""
    below = f"0::{manager_cgroup(uid)}/".encode()
    return any(line.startswith(below) for line in cgroup.splitlines())


def entering(uid: int) -> tuple[str, ...]:
    """The command that executes another one in a scope of the systemd for `uid`, who are we.

    Below their manager ordinary users may move processes of all their IDs. Out of the scope of a
    login session, which the system's systemd has made, only those of their own UID are moved.
    () when we are below it already. Raises Missing without systemd-run.
    """
    if is_managed(uid, Path("/proc/self/cgroup").read_bytes()):
        return ()
    program = process.require_program("systemd-run", "systemd")
    # Described, or the journal gets the launcher's whole command line.
    options = ("--user", "--scope", "--quiet", "--collect", "--description=box launcher", "--")
    return (str(program), *options)


def settle(cgroup: str, directories: Sequence[Path]) -> None:
    """See that systemd has done with the scope at `cgroup`, in which no process is left.

    No scope, or none that exists: nothing to do. One that systemd does not end is stopped. Raises
    CommandFailed when systemctl hangs.
    """
    if not cgroup.endswith(_SUFFIX):
        return
    deadline = time.monotonic() + _SETTLE_SECONDS
    while any(each.exists() for each in directories):
        if time.monotonic() >= deadline:
            _stop(cgroup)
            return
        time.sleep(_POLL_SECONDS)


def _stop(cgroup: str) -> None:
    uid = os.getuid()
    systemctl = process.find_program("systemctl")
    if systemctl is None:
        return
    which = () if uid == 0 else ("--user",)
    process.run(
        [systemctl, *which, "stop", cgroup.rpartition("/")[2]],
        env=manager_environment(uid),
        timeout_seconds=_STOP_SECONDS,
        check=False,
    )
