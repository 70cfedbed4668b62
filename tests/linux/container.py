"""A real runc container with a sleeping static program in the VMM's place.

The OCI spec is rendered here from a `Policy`, small and apart from the product's own renderer, so
that a test can weaken one thing in it and see the reading notice.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.linux import cgroups, identity, proc_stat, process, seccomp, userns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reconciler.confinement.policy import IdRange, Policy

RUNC = shutil.which("runc")
SCRATCH = "/mnt"
Spec = dict[str, Any]
START_TIMEOUT_SECONDS = 30.0


def build_probe(directory: Path) -> Path:
    """Compile probe.c, which without an argument only sleeps, as a static program."""
    program = directory / "probe"
    source = Path(__file__).with_name("probe.c")
    command = ["cc", "-O1", "-Wall", "-Werror", "-static", "-o", str(program), str(source)]
    subprocess.run(command, check=True, timeout=60)
    program.chmod(0o755)
    return program


def _mappings(ranges: tuple[IdRange, ...], inside: Callable[[int], int]) -> list[dict[str, int]]:
    return [
        {"containerID": each.inside, "hostID": inside(each.host), "size": each.size}
        for each in ranges
    ]


def render(policy: Policy, maps: userns.OuterMaps | None, argv: Sequence[str]) -> Spec:
    """The OCI spec of `policy`."""
    uid_inside = maps.uid_inside if maps else int
    gid_inside = maps.gid_inside if maps else int
    names = {"mnt": "mount", "net": "network"}
    caps = list(policy.capabilities)
    kinds = ("bounding", "effective", "permitted", "inheritable", "ambient")
    mounts: list[Spec] = [
        {
            "destination": each.target,
            "type": each.fstype,
            "source": each.source,
            "options": list(each.options),
        }
        for each in policy.kernel_mounts
    ]
    mounts += [
        {
            "destination": each.target,
            "type": "bind",
            "source": each.source,
            "options": ["bind", "nosuid", "nodev", "ro" if each.read_only else "rw"],
        }
        for each in policy.binds
    ]
    return {
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs", "readonly": policy.read_only_root},
        "hostname": "box",
        "process": {
            "args": list(argv),
            "cwd": "/",
            "env": [],
            "user": {"uid": policy.process_uid, "gid": policy.process_gid},
            "capabilities": dict.fromkeys(kinds, caps),
            "noNewPrivileges": policy.no_new_privileges,
            "oomScoreAdj": policy.oom_score_adj,
            "rlimits": [
                {"type": each.name, "soft": each.soft, "hard": each.hard} for each in policy.rlimits
            ],
        },
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": names.get(each, each)} for each in policy.namespaces],
            "uidMappings": _mappings(policy.uid_map, uid_inside),
            "gidMappings": _mappings(policy.gid_map, gid_inside),
            "cgroupsPath": policy.cgroup,
            "resources": {
                "pids": {"limit": policy.pids_limit},
                "memory": {
                    "limit": policy.memory_limit_bytes,
                    "swap": policy.memory_limit_bytes,
                },
                "devices": [{"allow": False, "access": "rwm"}],
            },
            "seccomp": seccomp.oci_seccomp(policy.seccomp_profile, os.uname().machine),
            "maskedPaths": list(policy.masked_paths),
            "readonlyPaths": list(policy.read_only_paths),
        },
    }


def _started_by(process: Path) -> bool:
    """Whether it is the runtime yet, or has what that gave it."""
    runtime = (process / "comm").read_text().startswith("runc")
    return runtime or proc_stat.parse_environment((process / "stat").read_bytes()) != 0


@contextmanager
def running(
    policy: Policy,
    argv: Sequence[str],
    *,
    maps: userns.OuterMaps | None = None,
    weaken: Callable[[Spec], None] | None = None,
    pass_fds: Sequence[int] = (),
    stderr: int = process.DEVNULL,
) -> Iterator[identity.ProcessIdentity]:
    """Run `argv` under `policy`, perhaps weakened; everything is gone afterwards."""
    assert RUNC is not None
    spec = render(policy, maps, argv)
    if weaken:
        weaken(spec)
    state = Path(tempfile.mkdtemp(prefix="box-test-runc-"))
    pid_file = state / "pid"
    name = policy.cgroup.strip("/").replace("/", "-")
    owner = spec["linux"]["uidMappings"][0]["hostID"], spec["linux"]["gidMappings"][0]["hostID"]
    command = [RUNC, "--root", str(state / "root"), "--log", str(state / "log"), "run", "-d"]
    command += ["--bundle", SCRATCH, "--pid-file", str(pid_file)]
    command += ["--preserve-fds", str(len(pass_fds)), name]
    try:
        with (
            (state / "stderr").open("wb") as errors,
            userns.start_in_namespaces(
                command,
                maps=maps,
                scratch_dir=SCRATCH,
                config=json.dumps(spec).encode(),
                rootfs_owner=owner,
                pass_fds=pass_fds,
                stderr=stderr,
                errors=errors.fileno(),
            ) as runtime,
        ):
            code = runtime.wait(START_TIMEOUT_SECONDS)
        logs = [path.read_text() for path in (state / "stderr", state / "log") if path.exists()]
        assert code == 0, "\n".join(logs)
        pid = int(pid_file.read_text())
        # runc returns before its own process in the container has executed the program.
        # The program then executes itself once more, without the HOME that runc sets.
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while _started_by(Path(f"/proc/{pid}")) and time.monotonic() < deadline:
            time.sleep(0.001)
        who = identity.identify(pid)
        assert who is not None
        yield who
    finally:
        layout = cgroups.detect()
        paths = layout.directories(policy.cgroup)
        cgroups.kill_all(paths)
        cgroups.remove(paths)
        shutil.rmtree(state)
