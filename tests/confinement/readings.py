"""A reading in which every promise is kept, to be changed in one place by a test."""

from __future__ import annotations

import struct
from dataclasses import replace

from reconciler.confinement.policy import (
    NAMESPACES,
    RUNTIME_DEVICES,
    BindMount,
    Policy,
    Slot,
    policy_for,
)
from reconciler.confinement.reading import (
    CgroupLimits,
    FileReading,
    HostReading,
    MappedReading,
    MountReading,
    MountSource,
    NamespaceId,
    PlaceReading,
    ProcessReading,
    Reading,
    ThreadReading,
    Withheld,
)

PID = 50
BASE = 300_000
CGROUP = "/box-1000/vm"
POLICY: Policy = policy_for(
    isolation="strict",
    ram_mib=128,
    cpus=1,
    own_uid=1000,
    own_gid=1000,
    slot=Slot(0, BASE, BASE),
    cgroup=CGROUP,
    binds=(BindMount("/usr/bin/vmm", "/bin/vmm"),),
    devices=("/dev/kvm",),
)
REFUSES_ALL = struct.pack("<HBBI", 0x06, 0, 0, 0x00050001)  # return EPERM
ALLOWS_ALL = struct.pack("<HBBI", 0x06, 0, 0, 0x7FFF0000)
_SETS = ("inheritable", "permitted", "effective", "bounding", "ambient")


def thread(tid: int = PID) -> ThreadReading:
    return ThreadReading(
        tid=tid,
        uids=(BASE,) * 4,
        gids=(BASE,) * 4,
        groups=(),
        capabilities=dict.fromkeys(_SETS, 0),
        no_new_privileges=1,
        seccomp_mode=2,
        seccomp_filters=2,
        tracer_pid=0,
        namespaces={kind: NamespaceId(4, 1000 + n) for n, kind in enumerate(NAMESPACES)},
        cgroups={"memory": CGROUP, "pids": CGROUP},
        programs=(REFUSES_ALL,),
        label=Withheld("no security module"),
        root=(39, 2),
        directory=(39, 2),
    )


def mount(
    target: str, fstype: str, device: str, root: str, *options: str, mount_id: int = 100
) -> MountReading:
    return MountReading(mount_id, device, root, target, options, (), fstype)


def mounts() -> tuple[MountReading, ...]:
    found = [
        mount("/", "tmpfs", "0:39", "/rootfs", "ro", "nosuid", "nodev", "relatime"),
        mount("/proc", "proc", "0:41", "/", "ro", "nosuid", "nodev", "noexec"),
        mount("/dev", "tmpfs", "0:42", "/", "ro", "nosuid", "noexec"),
        mount("/bin/vmm", "ext4", "254:0", "/usr/bin/vmm", "ro", "nosuid", "nodev"),
        mount("/proc/acpi", "tmpfs", "0:43", "/", "ro", "relatime"),
        mount("/proc/keys", "devtmpfs", "0:6", "/null", "rw"),
        mount("/proc/sys", "proc", "0:41", "/sys", "ro", "nosuid"),
    ]
    found += [
        mount(device, "devtmpfs", "0:6", device.removeprefix("/dev"), "rw")
        for device in (*RUNTIME_DEVICES, "/dev/kvm")
    ]
    return tuple(replace(each, mount_id=100 + n) for n, each in enumerate(found))


def process(pid: int = PID, *threads: ThreadReading) -> ProcessReading:
    return ProcessReading(
        pid=pid,
        environment_bytes=0,
        tty=0,
        threads=threads or (thread(pid), thread(pid + 1)),
        uid_map=POLICY.uid_map,
        gid_map=POLICY.gid_map,
        interfaces=("lo",),
        rlimits={each.name: (each.soft, each.hard) for each in POLICY.rlimits},
        oom_score_adj=500,
        mounts=mounts(),
        files=(
            FileReading(0, 20, 7, ""),
            FileReading(1, 100, 3, ""),
            FileReading(3, 9, 1, "eventfd"),
        ),
        root=PlaceReading("/", 100),
        directory=PlaceReading("/", 100),
        program=PlaceReading("/bin/vmm", 103),
        masked={"/proc/acpi": "empty", "/proc/keys": "null", "/proc/asound": "absent"},
        mapped=(
            MappedReading("fe:00", 77, "/bin/vmm"),
            MappedReading("00:01", 5, "/memfd:ram (deleted)"),
            MappedReading("00:0e", 9, "anon_inode:kvm-vcpu:0"),
        ),
        parts={"/bin/vmm": 77},
    )


HOST = HostReading(
    namespaces={kind: NamespaceId(4, 1 + n) for n, kind in enumerate(NAMESPACES)},
    sources={
        "/usr/bin/vmm": MountSource("254:0", "/usr/bin/vmm"),
        **{
            device: MountSource("0:6", device.removeprefix("/dev"))
            for device in (*RUNTIME_DEVICES, "/dev/kvm")
        },
    },
    present=frozenset({"/proc/acpi", "/proc/keys", "/proc/sys"}),
    kernel_mount_ids=frozenset({9}),
    open_files=frozenset({(20, 7)}),
    machine="x86_64",
    oom_score_adj=0,
    memory_device="00:01",
    kernel_device="00:0e",
    device_numbers=frozenset({"c 1:3", "c 10:232"}),
    is_root=True,
)
LIMITS = CgroupLimits(
    pids=POLICY.pids_limit,
    memory=POLICY.memory_limit_bytes,
    memory_and_swap=POLICY.memory_limit_bytes,
    devices=frozenset({"c 1:3 rwm", "c 10:232 rwm", "c 136:* rwm", "b *:* m", "c *:* m"}),
    hangs_when_full=False,
)
READING = Reading(
    pid=PID,
    void=None,
    processes=(process(),),
    members=frozenset({PID}),
    limits=LIMITS,
    host=HOST,
    noted=None,
    neighbours={},
)
