"""How much of what is kept from guests is left once a fast writer stands still; see README.md.

Run as `.venv/bin/python bench/space.py [ROUNDS]`, as root: the file system is a tmpfs of 8 GiB.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from reconciler.backends import runtime
from reconciler.engine import freezing, records, space, traces
from reconciler.engine.home import disk_of, open_home, sandbox_directory
from reconciler.engine.records import STANDING, VmRecord
from reconciler.engine.spec import Spec
from reconciler.linux import cgroups, freezer, identity

_ROUNDS = 5
_SIZE = 8 << 30
_SPEC = Spec(
    name="web", base="builtin:busybox", backend="qemu", isolation="strict", cpus=1, ram_mib=256,
    network="none", readonly=False, timeout_seconds=0, env=(), data_size="8G", state="running",
    on_drift="stop", protect=False,
)  # fmt: skip


def main() -> int:
    """Measure and print; always 0."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else _ROUNDS
    with tempfile.TemporaryDirectory(prefix="box-bench-", dir="/tmp") as directory:
        os.environ["BOX_HOME"] = str(Path(directory, "home"))
        home = open_home()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "box-bench"]
        subprocess.run([*mount, home / "sandboxes"], check=True)
        try:
            found = [_one(home) for _ in range(rounds)]
        finally:
            subprocess.run(["umount", home / "sandboxes"], check=True)
    speeds, left = zip(*found, strict=True)
    print(f"a writer of {median(speeds) / 1e9:.2f} GB/s, {rounds} rounds")
    print(f"left of what is kept once it stands still: {median(left):.2f} (least {min(left):.2f})")
    return 0


def _one(home: Path) -> tuple[float, float]:
    """The writer's bytes per second, and the part of what is kept that is left at its end."""
    sandbox_directory(home, "web")
    disk = disk_of(home, "web")
    words = ["/bin/sh", "-c", f"echo; read _; cat /dev/zero >{disk}; exit"]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    vm = _record(home, child.pid)
    directories = freezing.directories(vm)
    for hierarchy in cgroups.detect().hierarchies:
        if hierarchy.controllers & {"pids", "freezer"} or hierarchy.version == 2:
            path = hierarchy.directory(runtime.cgroup_path(runtime.find_runtime(), vm.group))
            path.mkdir(parents=True, exist_ok=True)
            (path / "cgroup.procs").write_text(str(child.pid))
    vm.directory(home).mkdir()
    records.keep_vm(home, vm)
    paused = threading.Event()
    try:
        with space.watched(home, lambda *_: paused.set()):
            assert child.stdin is not None
            began = time.monotonic()
            child.stdin.close()
            paused.wait(60)
            seconds = time.monotonic() - began
        assert freezer.is_frozen(directories)
        stat = os.statvfs(home / "sandboxes")
        kept = space.mark(stat.f_blocks * stat.f_frsize)
        return disk.stat().st_size / seconds, stat.f_bavail * stat.f_frsize / kept
    finally:
        cgroups.kill_all(directories)
        child.stdout.close()
        child.wait()
        traces.discard(home, vm)
        disk.unlink()


def _record(home: Path, pid: int) -> VmRecord:
    return VmRecord(
        vm="web", sandbox="web", kind=STANDING, incarnation=1, group=traces.group_of(home, "web"),
        spec=_SPEC, token="ab" * 32, identity=identity.identify(pid),
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
