"""What was read about a running VMM: plain data, gathered by `linux`, judged by `judging`.

IDs and cgroup paths are as the reader sees them. A part that could not be read is an `Unreadable`
with the reason, never an empty value that might pass for a good one.
"""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.confinement.policy import IdRange


@dataclass(frozen=True)
class Unreadable:
    """Why something could not be read."""

    why: str


@dataclass(frozen=True)
class Withheld:
    """Why this kernel, or what we may do here, does not show something at all."""

    why: str


@dataclass(frozen=True)
class NamespaceId:
    """stat(2) of a namespace link; numbers are reused once no process holds the namespace."""

    device: int
    inode: int


@dataclass(frozen=True)
class ThreadReading:
    """One thread. `uids` and `gids` are real, effective, saved, file system.

    `capabilities` are masks by set: inheritable, permitted, effective, bounding, ambient.
    `cgroups` is the path in the hierarchy of each promised controller, those of version 1 included
    that only it has. `programs` are its seccomp
    filters as the kernel holds them, the newest first, None when they were not asked for. `label`
    is a security module's. `root` and `directory` are stat(2) of the two, as device and inode.
    """

    tid: int
    uids: tuple[int, ...]
    gids: tuple[int, ...]
    groups: tuple[int, ...]
    capabilities: dict[str, int]
    no_new_privileges: int
    seccomp_mode: int
    seccomp_filters: int
    tracer_pid: int
    namespaces: dict[str, NamespaceId | Unreadable]
    cgroups: dict[str, str] | Unreadable
    programs: tuple[bytes, ...] | Unreadable | Withheld | None
    label: str | Unreadable | Withheld
    root: tuple[int, int] | Unreadable
    directory: tuple[int, int] | Unreadable


@dataclass(frozen=True)
class MountReading:
    """One mount of the VMM, as `procfs.MountEntry` describes it."""

    mount_id: int
    device: str
    root: str
    target: str
    options: tuple[str, ...]
    propagation: tuple[str, ...]
    fstype: str


@dataclass(frozen=True)
class MountSource:
    """Where a path of ours lies: the file system's device and the path inside it."""

    device: str
    root: str


@dataclass(frozen=True)
class FileReading:
    """One open descriptor: the mount it came through, its inode there, and what kind it is.

    `kind` is "" for files, pipes and sockets, else what the kernel calls it: "eventfd".
    """

    fd: int
    mount_id: int
    inode: int | None
    kind: str


@dataclass(frozen=True)
class MappedReading:
    """What is mapped into a process's memory and has an inode: files, memory that has a name.

    `device` is as /proc/PID/maps writes it ("fe:00"), `name` a path as the process's own root has
    it, with " (deleted)" behind it once it lost its name.
    """

    device: str
    inode: int
    name: str


@dataclass(frozen=True)
class PlaceReading:
    """Where a link of /proc/PID leads (root, cwd, exe): its text, and the mount that is on."""

    text: str
    mount_id: int


@dataclass(frozen=True)
class ProcessReading:
    """One process. `rlimits` are (soft, hard) by RLIMIT_ name, None for unlimited.

    `environment_bytes` is the length of the environment that it was started with.
    `tty` is the device number of its controlling terminal, 0 for none. `masked` tells what is at
    each masked path as the process sees it: "null", "empty", "absent", or else what. `parts` are
    the inodes of what lies at those bind targets of the policy whose names are among `mapped`, as
    the process sees them.
    """

    pid: int
    environment_bytes: int | Unreadable
    tty: int | Unreadable
    threads: tuple[ThreadReading, ...]
    uid_map: tuple[IdRange, ...] | Unreadable
    gid_map: tuple[IdRange, ...] | Unreadable
    interfaces: tuple[str, ...] | Unreadable
    rlimits: dict[str, tuple[int | None, int | None]] | Unreadable
    oom_score_adj: int | Unreadable
    mounts: tuple[MountReading, ...] | Unreadable
    files: tuple[FileReading, ...] | Unreadable
    root: PlaceReading | Unreadable
    directory: PlaceReading | Unreadable
    program: PlaceReading | Unreadable
    masked: dict[str, str] | Unreadable
    mapped: tuple[MappedReading, ...] | Unreadable
    parts: dict[str, int] | Unreadable


@dataclass(frozen=True)
class CgroupLimits:
    """The weakest limits in force on any thread; None is no limit. Memory in bytes.

    `devices` are the lines of version 1's devices.list, None where version 1 does not hold devices.
    `hangs_when_full` tells that a thread which has used its memory up would wait for ever.
    """

    pids: int | None
    memory: int | None
    memory_and_swap: int | None
    devices: frozenset[str] | None
    hangs_when_full: bool


@dataclass(frozen=True)
class HostReading:
    """Our own side, read at the same time, that the VMM's is compared with.

    `sources` tells where the policy's bind sources and device nodes lie, by path; `present` which
    of its masked and read-only paths this kernel has. `kernel_mount_ids` are the mounts that
    pipes, sockets and the like have in the kernel, `open_files` the descriptors it was given.
    `machine` is as uname(2) names it, `oom_score_adj` box's own. `memory_device` and
    `kernel_device` are those of named memory and of the kernel's own files in /proc/PID/maps.
    `device_numbers` are those of the policy's device nodes, as devices.list writes them ("c 1:3");
    `is_root` tells whether we may hold a cgroup to devices at all.
    """

    namespaces: dict[str, NamespaceId | Unreadable]
    sources: dict[str, MountSource | Unreadable]
    present: frozenset[str]
    kernel_mount_ids: frozenset[int]
    open_files: frozenset[tuple[int, int]]
    machine: str
    oom_score_adj: int
    memory_device: str
    kernel_device: str
    device_numbers: frozenset[str]
    is_root: bool


@dataclass(frozen=True)
class Noted:
    """What was found at a VM's start, when nothing of the guest's had been answered yet.

    No later reading may find anything else: `filters` are the numbers of seccomp filters a thread
    had, `programs` their digests, empty where the kernel does not show them for the reason
    `withheld`, `labels` the security labels. `places` are the mounts, each with its target, device
    and root: what lay there then is what a read-only one holds, whatever its name leads to by now.
    `open_files` are the policy's as whoever started it saw them: in another mount namespace the
    same files are on mounts of other numbers.
    """

    filters: frozenset[int]
    programs: frozenset[str]
    labels: frozenset[str]
    withheld: str = ""
    places: frozenset[tuple[str, str, str]] = frozenset()
    open_files: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True)
class Neighbour:
    """Another running sandbox: its leader's namespaces, and the IDs that it holds."""

    namespaces: dict[str, NamespaceId | Unreadable]
    uid_map: tuple[IdRange, ...] | Unreadable
    gid_map: tuple[IdRange, ...] | Unreadable


@dataclass(frozen=True)
class Reading:
    """Everything that was read of the VMM `pid`, first in `processes`, and its cgroup's others.

    `void` says why the reading stands for nothing: the VMM ended or changed while it was read.
    `noted` is None at the VM's start, `Unreadable` once it is lost. `neighbours` are all other
    running sandboxes that we know.
    """

    pid: int
    void: str | None
    processes: tuple[ProcessReading, ...]
    members: frozenset[int] | Unreadable
    limits: CgroupLimits | Unreadable
    host: HostReading
    noted: Noted | Unreadable | None
    neighbours: dict[str, Neighbour]
