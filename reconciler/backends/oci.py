"""The OCI runtime's configuration: rendered from the policy and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reconciler.confinement.policy import IdRange, Policy
from reconciler.linux import seccomp, userns

_OCI_NAMES = {"mnt": "mount", "net": "network"}
# For runtimes that have systemd make the cgroup; others take no notice.
_ANNOTATIONS = {
    # crun.1: else the VMM is in a cgroup "container" below the scope, and the limits are there too.
    "run.oci.systemd.subgroup": "",
    # systemd.unit(5): else a scope that failed (out of memory) stays, and keeps its name.
    "org.systemd.property.CollectMode": "'inactive-or-failed'",
}
_CAPABILITY_SETS = ("bounding", "effective", "permitted", "inheritable", "ambient")


def oci_spec(
    policy: Policy, cgroups_path: str, maps: userns.OuterMaps | None, argv: Sequence[str]
) -> dict[str, Any]:
    """The OCI runtime spec (config.json) that holds `argv` to the policy.

    `cgroups_path` is as the runtime's cgroup driver takes it; `maps` are those of the launcher's
    user namespace, None under root.
    """
    uid_inside = maps.uid_inside if maps else int
    gid_inside = maps.gid_inside if maps else int
    return {
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs", "readonly": policy.read_only_root},
        "hostname": "box",
        "process": _process(policy, argv),
        "mounts": _mounts(policy),
        "annotations": dict(_ANNOTATIONS),
        "linux": {
            "namespaces": [{"type": _OCI_NAMES.get(n, n)} for n in policy.namespaces],
            "uidMappings": _mappings(policy.uid_map, uid_inside),
            "gidMappings": _mappings(policy.gid_map, gid_inside),
            "cgroupsPath": cgroups_path,
            "resources": _resources(policy),
            "devices": [_device(path) for path in policy.devices],
            "seccomp": seccomp.oci_seccomp(policy.seccomp_profile, os.uname().machine),
            "maskedPaths": list(policy.masked_paths),
            "readonlyPaths": list(policy.read_only_paths),
        },
    }


def _process(policy: Policy, argv: Sequence[str]) -> dict[str, Any]:
    return {
        "args": list(argv),
        "cwd": "/",
        "env": [f"{name}={value}" for name, value in policy.environment],
        "user": {"uid": policy.process_uid, "gid": policy.process_gid},
        "capabilities": {each: list(policy.capabilities) for each in _CAPABILITY_SETS},
        "noNewPrivileges": policy.no_new_privileges,
        "oomScoreAdj": policy.oom_score_adj,
        "rlimits": [{"type": r.name, "soft": r.soft, "hard": r.hard} for r in policy.rlimits],
    }


def _mounts(policy: Policy) -> list[dict[str, Any]]:
    kernel = [
        {"destination": m.target, "type": m.fstype, "source": m.source, "options": list(m.options)}
        for m in policy.kernel_mounts
    ]
    binds = [
        {
            "destination": m.target,
            "type": "bind",
            "source": m.source,
            "options": ["bind", "nosuid", "nodev", "ro" if m.read_only else "rw"],
        }
        for m in policy.binds
    ]
    return kernel + binds


def _mappings(ranges: tuple[IdRange, ...], inside: Callable[[int], int]) -> list[dict[str, int]]:
    return [
        {"containerID": each.inside, "hostID": inside(each.host), "size": each.size}
        for each in ranges
    ]


def _resources(policy: Policy) -> dict[str, Any]:
    allowed = [{"allow": True, "access": "rw", **_node(path)} for path in policy.devices]
    return {
        "pids": {"limit": policy.pids_limit},
        # Swap is the sum of both in the spec's words: equal means none.
        "memory": {"limit": policy.memory_limit_bytes, "swap": policy.memory_limit_bytes},
        "devices": [{"allow": False, "access": "rwm"}, *allowed],
    }


def _node(path: str) -> dict[str, Any]:
    number = Path(path).stat().st_rdev
    return {"type": "c", "major": os.major(number), "minor": os.minor(number)}


def _device(path: str) -> dict[str, Any]:
    return {"path": path, **_node(path), "fileMode": 0o600, "uid": 0, "gid": 0}
