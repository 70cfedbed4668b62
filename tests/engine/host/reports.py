"""What a doctor says of a host on which something is amiss, and what is left of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from reconciler.engine import slots
from reconciler.linux import cgroups

REPO = Path(__file__).parents[3]


def of_doctors(home: Path) -> list[str]:
    """What doctors of this home have on the host."""
    layout = cgroups.detect()
    left = [
        str(path)
        for each in layout.hierarchies
        for path in Path(each.mount).glob("box*/doctor-*")
        if not _is_anothers(path)
    ]
    left += [str(path) for path in (home / "sandboxes").iterdir()]
    left += [str(path) for path in (home / "runtime").iterdir()]
    left += [str(owner) for owner in slots.held() if owner.parent.parent == home]
    left += [str(path) for path in (home / "tmp").glob("*") if path.name != ".lock"]
    return left


def _is_anothers(cgroup: Path) -> bool:
    """Whether it is that of a doctor of somebody else's, which runs or has just taken it away."""
    pid = cgroup.name.split("-")[1]
    return pid != str(os.getpid()) and (Path("/proc", pid).exists() or not cgroup.exists())


def in_a_mount_namespace(shell: str, script: str, home: Path) -> str:
    """What a script prints that runs where `shell` has changed what is mounted."""
    command = f'mount --make-rprivate / && {shell} && exec {sys.executable} -c "$0" {home}'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, script],
        cwd=REPO,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


REPORT = """
import sys
from pathlib import Path
from reconciler.engine.host.checks import check_host
for each in check_host(Path(sys.argv[1]), lambda text: None):
    print(each.id, each.status, each.seen.found, "fix:", each.seen.fix)
"""


def line_of(text: str, check_id: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(f"{check_id} ")]
    return line
