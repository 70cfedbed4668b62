"""What box promises about the process that holds a VM: one sentence each, by a stable id."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Promise:
    """An `id` that reports and tests name, and the sentence that a user reads."""

    id: str
    sentence: str


PROMISES = (
    Promise("identity.uid", "Every thread's four UIDs are among the sandbox's own."),
    Promise("identity.gid", "Every thread's four GIDs are among the sandbox's own."),
    Promise("identity.groups", "No thread has a supplementary group."),
    Promise("identity.uid_map", "Its user namespace holds exactly the sandbox's UIDs."),
    Promise("identity.gid_map", "Its user namespace holds exactly the sandbox's GIDs."),
    Promise("capabilities", "No thread has, or can get, a capability that was not asked for."),
    Promise("no_new_privs", "No thread can gain privileges by executing a program."),
    Promise("seccomp", "A system call filter is on for every thread."),
    Promise(
        "seccomp.filter", "No filter lets through what no VMM needs, or differs from its start's."
    ),
    Promise("label", "A security module's label, where the host has one, is that of its start."),
    Promise("untraced", "No debugger is attached to a thread."),
    Promise("program", "It runs a program that was declared."),
    Promise("root", "Its root and working directory are the jail's, on every thread."),
    Promise("terminal", "It has no controlling terminal."),
    Promise("namespace.user", "It has a user namespace of its own."),
    Promise("namespace.mnt", "It has a mount namespace of its own."),
    Promise("namespace.pid", "It has a process namespace of its own."),
    Promise("namespace.ipc", "It has an IPC namespace of its own."),
    Promise("namespace.uts", "It has a host name of its own."),
    Promise("namespace.net", "It has a network namespace of its own."),
    Promise("namespace.cgroup", "It has a cgroup namespace of its own."),
    Promise("apart.namespaces", "It shares no namespace with another running sandbox."),
    Promise("apart.ids", "It shares no UID or GID with another running strict sandbox."),
    Promise("network.interfaces", "It sees no network interface but a loopback of its own."),
    Promise("cgroup.path", "Every thread is in the sandbox's cgroup."),
    Promise("cgroup.members", "No other process is in the sandbox's cgroup."),
    Promise("limit.pids", "The kernel holds it to a number of processes and threads."),
    Promise("limit.memory", "The kernel holds it to the sandbox's memory."),
    Promise("limit.swap", "The kernel holds it to the same with swap counted."),
    Promise("limit.core", "It cannot leave a core file, which would hold the guest's memory."),
    Promise("limit.rlimits", "Its other resource limits are as set, and cannot be raised."),
    Promise("oom_score", "The kernel ends it before it ends box, when memory runs out."),
    Promise("mounts.declared", "Its files are what was declared and the VMM's own parts."),
    Promise("mounts.masked", "What /proc tells of the host is masked, as it sees it."),
    Promise("mounts.private", "Nothing mounted on the host later appears in it."),
    Promise("files.open", "It holds no file of the host open but those given to it."),
    Promise("files.kinds", "It holds no ring, program or handle of another process."),
)


def promise(promise_id: str) -> Promise:
    """The promise with this id; KeyError without one."""
    for each in PROMISES:
        if each.id == promise_id:
            return each
    raise KeyError(promise_id)
