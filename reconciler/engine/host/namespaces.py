"""Whether a jail's namespaces can be made here: the launcher's own way, with `true` as runtime."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.backends import jail
from reconciler.engine.host.trying import START_SECONDS
from reconciler.errors import Missing
from reconciler.linux import process, userns

if TYPE_CHECKING:
    from subprocess import Popen

_REPLY_BYTES = 4096


def check_namespaces() -> str:
    """Make the namespaces that a launch makes, as this user, and say which.

    Raises Missing with the setting that forbids it, MapsRefused when the IDs are at fault.
    """
    maps = jail.outer_maps()
    scratch = next((path for path in jail.SCRATCH_DIRECTORIES if Path(path).is_dir()), "/mnt")
    reading, writing = os.pipe2(os.O_CLOEXEC)
    try:
        with userns.start_in_namespaces(
            [str(process.require_program("true", "coreutils"))],
            maps=maps,
            scratch_dir=scratch,
            config=b"{}",
            rootfs_owner=(0, 0),
            errors=writing,
        ) as launcher:
            os.close(writing)
            writing = -1
            status = _status(launcher)
            said = _said(reading)
    finally:
        os.close(reading)
        if writing != -1:
            os.close(writing)
    if status != 0:
        raise Missing(
            "The kernel does not let this user make the namespaces of a jail.",
            details=said or None,
            hint=forbidding_setting(),
        )
    return "a mount namespace" if maps is None else "user and mount namespaces"


def _status(launcher: Popen[bytes]) -> int:
    import subprocess

    try:
        return launcher.wait(START_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Missing(
            f"The namespaces of a jail were not made within {START_SECONDS:g} seconds.",
            hint="see what the kernel waits for: sudo dmesg",
        ) from error


def _said(reading: int) -> str:
    os.set_blocking(reading, False)
    try:
        return os.read(reading, _REPLY_BYTES).decode(errors="replace").strip()
    except BlockingIOError:
        return ""


def forbidding_setting(root: Path = Path("/")) -> str:
    """The command that lifts what forbids user namespaces here, as far as it is known.

    `root` is where proc/ is.
    """
    # Ubuntu 23.10 and later: a user namespace is made, but gives no capabilities.
    if _setting(root, "kernel/apparmor_restrict_unprivileged_userns") == "1":
        return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    # A patch of Debian's.
    if _setting(root, "kernel/unprivileged_userns_clone") == "0":
        return "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if _setting(root, "user/max_user_namespaces") == "0":
        return "sudo sysctl -w user.max_user_namespaces=10000"
    return "in a container: start it so that it may make user and mount namespaces"


def _setting(root: Path, name: str) -> str | None:
    try:
        return (root / "proc/sys" / name).read_text().strip()
    except OSError:
        return None
