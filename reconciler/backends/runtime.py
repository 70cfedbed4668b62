"""Which OCI runtime starts the jail, and through which cgroup driver."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from reconciler.errors import Missing
from reconciler.linux import cgroups, delegation, process, scopes


@dataclass(frozen=True)
class Runtime:
    """The runtime's program, and whether cgroups are made by systemd (else in cgroupfs)."""

    path: Path
    systemd: bool

    @property
    def name(self) -> str:
        """`crun` or `runc`."""
        return self.path.name


def find_runtime() -> Runtime:
    """The runtime to use here: crun, else runc. Raises Missing with the command that gets one.

    crun refuses hosts with hybrid cgroups ("cgroups in hybrid mode not supported"), so there it
    counts as missing.
    """
    hybrid = cgroups.detect().kind == "hybrid"
    for name in ("runc",) if hybrid else ("crun", "runc"):
        path = process.find_program(name)
        if path is not None:
            return Runtime(path, systemd=scopes.has_manager(os.getuid()))
    raise Missing(
        "No usable OCI runtime is installed.",
        details="crun does not support this host's hybrid cgroups" if hybrid else None,
        hint=process.install_command("runc"),
    )


def cgroup_path(runtime: Runtime, group: str) -> str:
    """Where the cgroup `group` of ours lies below each hierarchy's root."""
    uid = os.getuid()
    if not runtime.systemd:
        return f"{delegation.parent_of(uid)}/{group}"
    return f"{scopes.manager_cgroup(uid)}/{_slice(uid)}/box-{group}.scope"


def oci_cgroups_path(runtime: Runtime, group: str) -> str:
    """The same in the spec's `linux.cgroupsPath`: systemd's drivers take SLICE:PREFIX:NAME."""
    if not runtime.systemd:
        return cgroup_path(runtime, group)
    return f"{_slice(os.getuid())}:box:{group}"


def _slice(uid: int) -> str:
    return "system.slice" if uid == 0 else "user.slice"


def groups(runtime: Runtime, prefix: str) -> frozenset[str]:
    """The groups that exist, in any hierarchy, and whose names begin with `prefix`."""
    example = PurePosixPath(cgroup_path(runtime, prefix))
    stem, suffix = example.name.removesuffix(".scope"), ".scope" if runtime.systemd else ""
    return frozenset(
        prefix + path.name.removesuffix(suffix).removeprefix(stem)
        for parent in cgroups.detect().directories(str(example.parent))
        for path in parent.glob(f"{stem}*{suffix}")
        if path.is_dir()
    )


def ensure_delegation(runtime: Runtime) -> None:
    """See that cgroups can be made where `cgroup_path` says.

    Root makes the parent itself; an ordinary user needs a systemd of their own, or where there can
    be none, the parent made once per boot. Raises Missing with the command that does.
    """
    if runtime.systemd:
        return
    uid = os.getuid()
    problem = delegation.probe_delegation(delegation.parent_of(uid))
    if problem is None:
        return
    if uid == 0:
        delegation.make_delegation(delegation.parent_of(0), 0, 0)
        return
    often = "" if scopes.can_have_manager() else " (once per boot, where no systemd does it)"
    raise Missing(
        "No cgroup is delegated to you, so no limit would be in force.",
        details=problem,
        hint=f"{delegation.setup_line(uid)}{often}",
    )


def environment(runtime: Runtime) -> dict[str, str]:
    """What the runtime is told: the way to the user's systemd, nothing else."""
    return scopes.manager_environment(os.getuid()) if runtime.systemd else {}


def launcher_prefix(runtime: Runtime) -> tuple[str, ...]:
    """The command that executes the launcher where the runtime can make the jail's scope.

    crun has systemd move a process that has the jail's UID already; runc one that is still ours.
    """
    return scopes.entering(os.getuid()) if runtime.systemd and runtime.name == "crun" else ()


def has_manager(uid: int) -> bool:
    """Whether a systemd makes cgroups for `uid`: the system's for root, else the user's own."""
    return scopes.has_manager(uid)
