"""The policy that a sandbox's VMM is launched under and later read back against.

One value serves both: the launcher renders an OCI spec from it, and `judging` compares a reading
of the running process with it, so the report cannot describe what was not applied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from reconciler.errors import Refused

Isolation = Literal["standard", "strict"]

MIB = 1 << 20
SLOT_SIZE = 65_536
# What QEMU needs beside the guest's memory: its heap, thread stacks, and a bounded code cache.
VMM_OVERHEAD_MIB = 256
# QEMU's block layer starts up to 64 workers, and aborts when a thread cannot be made.
VMM_THREADS = 128
# The device nodes that every OCI runtime puts into /dev (runtime-spec, config-linux.md).
RUNTIME_DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
)
# The profile of security/seccomp/ that each backend's VMM runs under.
SECCOMP_PROFILES = {"qemu": "qemu", "firecracker": "firecracker"}
NAMESPACES = ("user", "mnt", "pid", "ipc", "uts", "net", "cgroup")


@dataclass(frozen=True)
class Slot:
    """65,536 host IDs that belong to one strict sandbox; the same index in both ranges."""

    index: int
    uid_base: int
    gid_base: int


@dataclass(frozen=True)
class IdRange:
    """One line of a uid_map: `size` ids from `inside` are the ids from `host` outside."""

    inside: int
    host: int
    size: int


@dataclass(frozen=True)
class BindMount:
    """A file or directory of the host in the jail. Both paths are absolute."""

    source: str
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class KernelMount:
    """A file system that the kernel makes for the jail (proc, tmpfs): nothing of the host."""

    target: str
    fstype: str
    source: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Rlimit:
    """One resource limit, by its RLIMIT_ name; bytes or counts as setrlimit(2) takes them."""

    name: str
    soft: int
    hard: int


@dataclass(frozen=True)
class Policy:
    """All that one VMM is held to. IDs are those of the host, as box itself sees them.

    `process_uid` and `process_gid` are inside the user namespace. `cgroup` is the path below each
    hierarchy's root, with a leading slash. `open_files` are paths of the host whose descriptors the
    VMM may hold: its disk, its snapshot, /dev/null on its standard streams.
    """

    isolation: Isolation
    uid_map: tuple[IdRange, ...]
    gid_map: tuple[IdRange, ...]
    process_uid: int
    process_gid: int
    capabilities: tuple[str, ...]
    no_new_privileges: bool
    seccomp_profile: str
    namespaces: tuple[str, ...]
    cgroup: str
    pids_limit: int
    memory_limit_bytes: int
    rlimits: tuple[Rlimit, ...]
    binds: tuple[BindMount, ...]
    kernel_mounts: tuple[KernelMount, ...]
    masked_paths: tuple[str, ...]
    read_only_paths: tuple[str, ...]
    devices: tuple[str, ...]
    open_files: tuple[str, ...]
    read_only_root: bool
    oom_score_adj: int
    environment: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """The JSON object that `from_json` takes."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Policy:
        """The policy that was written down at a launch; ValueError when it is none."""
        try:
            plain = {name: _PARTS.get(name, _tupled)(each) for name, each in value.items()}
            return cls(**plain)
        except TypeError as error:
            raise ValueError("not a policy") from error


def _tupled(value: Any) -> Any:  # noqa: ANN401 - JSON has lists where the policy has tuples
    return tuple(_tupled(each) for each in value) if isinstance(value, list) else value


def _each(part: Callable[..., Any]) -> Callable[[list[dict[str, Any]]], tuple[Any, ...]]:
    return lambda value: tuple(part(**{k: _tupled(v) for k, v in each.items()}) for each in value)


_PARTS: dict[str, Callable[[Any], Any]] = {
    "uid_map": _each(IdRange),
    "gid_map": _each(IdRange),
    "rlimits": _each(Rlimit),
    "binds": _each(BindMount),
    "kernel_mounts": _each(KernelMount),
}


KERNEL_MOUNTS = (
    # Read-only: else a VMM could lower its own oom_score_adj, and write its read-only pages by mem.
    KernelMount("/proc", "proc", "proc", ("ro", "nosuid", "noexec", "nodev")),
    KernelMount("/dev", "tmpfs", "tmpfs", ("ro", "nosuid", "noexec", "mode=755", "size=65536")),
)
# The OCI runtimes' usual lists (runtime-spec, config-linux.md: maskedPaths, readonlyPaths).
MASKED_PATHS = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
)
READ_ONLY_PATHS = (
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
)


def policy_for(
    *,
    isolation: Isolation,
    ram_mib: int,
    cpus: int,
    own_uid: int,
    own_gid: int,
    slot: Slot | None,
    cgroup: str,
    binds: tuple[BindMount, ...] = (),
    devices: tuple[str, ...] = (),
    open_files: tuple[str, ...] = (),
    largest_file_bytes: int = 1 << 40,
    backend: str = "qemu",
) -> Policy:
    """The policy of a VMM that needs no capability (qemu, firecracker).

    `largest_file_bytes` bounds what the VMM may write to one file (its disk, its snapshot). Raises
    Refused when `isolation` is strict without a slot, or standard for root, whose account an escape
    must never land in; and for a backend without a seccomp profile.
    """
    if backend not in SECCOMP_PROFILES:
        raise Refused(f"There is no seccomp profile for the backend {backend}.")
    if isolation == "strict":
        if slot is None:
            raise Refused("A strict sandbox needs a slot of subordinate IDs of its own.")
        uid_map = (IdRange(0, slot.uid_base, SLOT_SIZE),)
        gid_map = (IdRange(0, slot.gid_base, SLOT_SIZE),)
    else:
        if own_uid == 0:
            raise Refused(
                "Under root only `isolation: strict` is possible.",
                details="With `standard` the VMM would run as root itself.",
                hint="set `isolation: strict` in the Boxfile, or run box as an ordinary user",
            )
        uid_map = (IdRange(0, own_uid, 1),)
        gid_map = (IdRange(0, own_gid, 1),)
    return Policy(
        isolation=isolation,
        uid_map=uid_map,
        gid_map=gid_map,
        process_uid=0,
        process_gid=0,
        capabilities=(),
        no_new_privileges=True,
        seccomp_profile=SECCOMP_PROFILES[backend],
        namespaces=NAMESPACES,
        cgroup=cgroup,
        pids_limit=VMM_THREADS + cpus,
        memory_limit_bytes=(ram_mib + VMM_OVERHEAD_MIB) * MIB,
        rlimits=_rlimits(largest_file_bytes, VMM_THREADS + cpus),
        binds=binds,
        kernel_mounts=KERNEL_MOUNTS,
        masked_paths=MASKED_PATHS,
        read_only_paths=READ_ONLY_PATHS,
        devices=devices,
        open_files=("/dev/null", *open_files),
        read_only_root=True,
        oom_score_adj=500,
        environment=(),
    )


def _rlimits(largest_file_bytes: int, threads: int) -> tuple[Rlimit, ...]:
    return (
        # A core file would hold the guest's memory.
        Rlimit("RLIMIT_CORE", 0, 0),
        Rlimit("RLIMIT_FSIZE", largest_file_bytes, largest_file_bytes),
        Rlimit("RLIMIT_MEMLOCK", 65_536, 65_536),
        Rlimit("RLIMIT_NOFILE", 1024, 1024),
        # Counted by user namespace (Linux 5.14), so nobody else's processes count.
        Rlimit("RLIMIT_NPROC", threads, threads),
    )
