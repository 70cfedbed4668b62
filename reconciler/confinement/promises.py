"""What box promises about the process that holds a VM: one sentence each, by a stable id.

Made from security/promises.yaml, which has more of each and says how to change one.
"""

from __future__ import annotations

from typing import NamedTuple


class Promise(NamedTuple):
    """An `id` that reports and tests name, and the sentence that a user reads.

    `group` is where the security report shows it, `read` the file and field that it is read from.
    `backends` are those it holds for.
    """

    id: str
    sentence: str
    group: str = "other"
    read: str = ""
    backends: tuple[str, ...] = ("qemu", "firecracker", "krun", "podman")


PROMISES = (
    Promise(
        "identity.uid",
        "Every thread's four UIDs are among the sandbox's own.",
        "identity",
        "/proc/PID/task/*/status: Uid",
    ),
    Promise(
        "identity.gid",
        "Every thread's four GIDs are among the sandbox's own.",
        "identity",
        "/proc/PID/task/*/status: Gid",
    ),
    Promise(
        "identity.groups",
        "No thread has a supplementary group.",
        "identity",
        "/proc/PID/task/*/status: Groups",
    ),
    Promise(
        "identity.uid_map",
        "Its user namespace holds exactly the sandbox's UIDs.",
        "identity",
        "/proc/PID/uid_map",
    ),
    Promise(
        "identity.gid_map",
        "Its user namespace holds exactly the sandbox's GIDs.",
        "identity",
        "/proc/PID/gid_map",
    ),
    Promise(
        "capabilities",
        "No thread has, or can get, a capability that was not asked for.",
        "privileges",
        "/proc/PID/task/*/status: CapInh, CapPrm, CapEff, CapBnd, CapAmb",
    ),
    Promise(
        "no_new_privs",
        "No thread can gain privileges by executing a program.",
        "privileges",
        "/proc/PID/task/*/status: NoNewPrivs",
    ),
    Promise(
        "seccomp",
        "A system call filter is on for every thread.",
        "seccomp",
        "/proc/PID/task/*/status: Seccomp, Seccomp_filters",
    ),
    Promise(
        "seccomp.filter",
        "No filter lets through what no VMM needs, or differs from its start's.",
        "seccomp",
        "ptrace(2): PTRACE_SECCOMP_GET_FILTER of every thread at the start; later Seccomp_filters",
    ),
    Promise(
        "label",
        "A security module's label, where the host has one, is that of its start.",
        "privileges",
        "/proc/PID/task/*/attr/current",
    ),
    Promise(
        "untraced",
        "No debugger is attached to a thread.",
        "privileges",
        "/proc/PID/task/*/status: TracerPid",
    ),
    Promise(
        "program",
        "It runs a program that was declared.",
        "files",
        "/proc/PID/exe: mount ID, and mountinfo",
    ),
    Promise(
        "environment",
        "Its environment is empty.",
        "files",
        "/proc/PID/stat: env_start, env_end",
        backends=("qemu", "firecracker"),
    ),
    Promise(
        "root",
        "Its root and working directory are the jail's, on every thread.",
        "files",
        "/proc/PID/task/*/root, cwd",
    ),
    Promise("terminal", "It has no controlling terminal.", "files", "/proc/PID/stat: tty_nr"),
    Promise(
        "namespace.user",
        "It has a user namespace of its own.",
        "namespaces",
        "/proc/PID/task/*/ns/user",
    ),
    Promise(
        "namespace.mnt",
        "It has a mount namespace of its own.",
        "namespaces",
        "/proc/PID/task/*/ns/mnt",
    ),
    Promise(
        "namespace.pid",
        "It has a process namespace of its own.",
        "namespaces",
        "/proc/PID/task/*/ns/pid",
    ),
    Promise(
        "namespace.ipc",
        "It has an IPC namespace of its own.",
        "namespaces",
        "/proc/PID/task/*/ns/ipc",
    ),
    Promise(
        "namespace.uts",
        "It has a host name of its own.",
        "namespaces",
        "/proc/PID/task/*/ns/uts",
    ),
    Promise(
        "namespace.net",
        "It has a network namespace of its own.",
        "namespaces",
        "/proc/PID/task/*/ns/net",
    ),
    Promise(
        "namespace.cgroup",
        "It has a cgroup namespace of its own.",
        "namespaces",
        "/proc/PID/task/*/ns/cgroup",
    ),
    Promise(
        "apart.namespaces",
        "It shares no namespace with another running sandbox.",
        "namespaces",
        "/proc/PID/task/*/ns, of all running sandboxes",
    ),
    Promise(
        "apart.ids",
        "It shares no UID or GID with another running strict sandbox.",
        "identity",
        "/proc/PID/uid_map, gid_map, of all running sandboxes",
    ),
    Promise(
        "network.interfaces",
        "It sees no network interface but a loopback of its own.",
        "network",
        "/proc/PID/net/dev",
        backends=("qemu", "firecracker"),
    ),
    Promise(
        "cgroup.path",
        "Every thread is in the sandbox's cgroup.",
        "limits",
        "/proc/PID/task/*/cgroup",
    ),
    Promise(
        "cgroup.members",
        "No other process is in the sandbox's cgroup.",
        "limits",
        "cgroup.procs of the sandbox's cgroup and those below",
    ),
    Promise(
        "limit.pids",
        "The kernel holds it to a number of processes and threads.",
        "limits",
        "pids.max of its cgroup and those above",
    ),
    Promise(
        "limit.memory",
        "The kernel holds it to the sandbox's memory.",
        "limits",
        "memory.max (v1: memory.limit_in_bytes, memory.oom_control) of its cgroup and those above",
    ),
    Promise(
        "limit.swap",
        "The kernel holds it to the same with swap counted.",
        "limits",
        "memory.swap.max (v1: memory.memsw.limit_in_bytes) of its cgroup and those above",
    ),
    Promise(
        "limit.devices",
        "The kernel lets it open no device but the jail's and those of every container.",
        "limits",
        "devices.list of its cgroup, in version 1",
        backends=("qemu", "firecracker"),
    ),
    Promise(
        "limit.core",
        "It cannot leave a core file, which would hold the guest's memory.",
        "limits",
        "/proc/PID/limits: Max core file size",
    ),
    Promise(
        "limit.rlimits",
        "Its other resource limits are as set, and cannot be raised.",
        "limits",
        "/proc/PID/limits",
    ),
    Promise(
        "oom_score",
        "The kernel ends it before it ends box, when memory runs out.",
        "limits",
        "/proc/PID/oom_score_adj",
    ),
    Promise(
        "mounts.declared",
        "Its files are what was declared and the VMM's own parts.",
        "files",
        "/proc/PID/mountinfo",
    ),
    Promise(
        "mounts.masked",
        "What /proc tells of the host is masked, as it sees it.",
        "files",
        "/proc/PID/root/proc/*",
    ),
    Promise(
        "mounts.private",
        "Nothing mounted on the host later appears in it.",
        "files",
        "/proc/PID/mountinfo: optional fields",
    ),
    Promise(
        "files.open",
        "It holds no file of the host open but those given to it.",
        "files",
        "/proc/PID/fdinfo/*: mnt_id, ino",
    ),
    Promise(
        "files.kinds",
        "It holds no ring, program or handle of another process.",
        "files",
        "/proc/PID/fdinfo/*",
    ),
    Promise(
        "files.mapped",
        "It has no file in its memory but its own parts.",
        "files",
        "/proc/PID/maps: device, inode, name",
    ),
)


def promise(promise_id: str) -> Promise:
    """The promise with this id; KeyError without one."""
    for each in PROMISES:
        if each.id == promise_id:
            return each
    raise KeyError(promise_id)
