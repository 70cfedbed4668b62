"""Another user of this host: root makes it do things, as nobody who has a name."""

from __future__ import annotations

import shlex
import subprocess

STRANGER = 65_432
PYTHON = "/usr/bin/python3"


def run_as(uid: int, *argv: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run a program as `uid`, in a group of the same number; `status` None for any."""
    drop = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
    done = subprocess.run(
        [*drop, *argv],
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert status in (None, done.returncode), f"{shlex.join(argv)}: {done.stderr}"
    return done


def stranger(*argv: str, status: int | None = 0) -> subprocess.CompletedProcess[str]:
    """The same as a user with whom nobody shares anything."""
    return run_as(STRANGER, *argv, status=status)
