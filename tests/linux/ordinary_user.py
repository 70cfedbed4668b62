"""A real ordinary user, made for a test and removed after it, with a cgroup of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reconciler.linux import cgroups, delegation

REPO = Path(cgroups.__file__).parent.parent.parent
# Not the interpreter that runs the tests: that may lie in a home that nobody else can enter.
PYTHON = "/usr/bin/python3"


@dataclass(frozen=True)
class OrdinaryUser:
    """A user whose home holds a copy of the package in src/."""

    name: str
    uid: int
    gid: int
    home: Path

    def run(self, script: str) -> str:
        """What a Python script prints that runs as this user, or its error as an AssertionError."""
        path = f"import sys; sys.path.insert(0, {str(self.home / 'src')!r})\n"
        drop = ["--reuid", str(self.uid), "--regid", str(self.gid), "--clear-groups"]
        done = subprocess.run(
            ["setpriv", *drop, PYTHON, "-I", "-c", path + textwrap.dedent(script)],
            env={"HOME": str(self.home), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def made() -> Iterator[OrdinaryUser]:
    """Make the user, its subordinate IDs (useradd does) and its delegated cgroup."""
    name = f"boxtest{os.getpid()}"
    subprocess.run(
        ["useradd", "--create-home", "--key", "HOME_MODE=0700", "--shell", "/bin/sh", name],
        check=True,
        timeout=60,
    )
    account = pwd.getpwnam(name)
    user = OrdinaryUser(name, account.pw_uid, account.pw_gid, Path(account.pw_dir))
    directories = cgroups.detect().directories(delegation.parent_of(user.uid))
    try:
        delegation.make_delegation(delegation.parent_of(user.uid), user.uid, user.gid)
        _copy_package(user)
        yield user
    finally:
        cgroups.kill_all(directories)
        cgroups.remove(directories)
        subprocess.run(["userdel", "--remove", name], check=True, capture_output=True, timeout=60)


def _copy_package(user: OrdinaryUser) -> None:
    source = user.home / "src"
    ignore = shutil.ignore_patterns("__pycache__")
    for part in ("reconciler", "security/seccomp", "tests/linux"):
        shutil.copytree(REPO / part, source / part, ignore=ignore)
    subprocess.run(["chown", "-R", f"{user.uid}:{user.gid}", source], check=True, timeout=60)
