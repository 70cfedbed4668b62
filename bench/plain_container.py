"""A container of podman's, as plain as it gets, in a storage of its own: what `exec` is beside."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reconciler.images import busybox
from reconciler.linux import process

_SECONDS = 120
_NAME = "plain"
# Root without CAP_SYS_RESOURCE cannot raise limits, and crun refuses hybrid cgroups.
_RUN = (
    "run", "--detach", "--runtime", "runc", "--network", "none", "--name", _NAME,
    "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "plain", "sleep", "100000",
)  # fmt: skip


@dataclass(frozen=True)
class PlainContainer:
    """A running container; `podman` is the command with the options that find its storage."""

    podman: tuple[str, ...]

    def exec_argv(self, *command: str) -> list[str | Path]:
        """The command line that runs `command` in it."""
        return [*self.podman, "exec", _NAME, *command]


@contextlib.contextmanager
def plain_container() -> Iterator[PlainContainer | None]:
    """A container that sleeps, of the host's busybox; None where podman cannot start one."""
    program = process.find_program("podman")
    if program is None:
        yield None
        return
    top = Path(tempfile.mkdtemp(prefix="box-bench-podman."))
    podman = (
        str(program), "--root", str(top / "root"), "--runroot", str(top / "run"),
        "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file",
    )  # fmt: skip
    try:
        yield PlainContainer(podman) if _started(podman, top) else None
    finally:
        _run([*podman, "rm", "--force", "--time", "0", _NAME])
        shutil.rmtree(top, ignore_errors=True)


def _started(podman: tuple[str, ...], top: Path) -> bool:
    tree = top / "tree"
    busybox.make_tree(busybox.find_busybox(), tree)
    archive = shutil.make_archive(str(top / "plain"), "tar", tree)
    return _run([*podman, "import", archive, "plain"]) and _run([*podman, *_RUN])


def _run(argv: list[str]) -> bool:
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_SECONDS,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]},
    )
    return done.returncode == 0
