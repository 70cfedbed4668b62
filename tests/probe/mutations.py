"""For every promise, launches and changes that break it: what the read-back must name.

Each breaks one thing. Where the kernel ties another promise to it, that one is in `also`, with the
reason; and where no launch and no change can break a promise by itself, the reading is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from reconciler.confinement.reading import (
    CgroupLimits,
    Noted,
    ProcessReading,
    Reading,
    ThreadReading,
)
from tests.probe import afterwards
from tests.probe import weaker_specs as specs
from tests.probe.afterwards import Around
from tests.probe.standing import Stand
from tests.probe.weaker_specs import Weaken

Afterwards = Callable[[Stand], AbstractContextManager[Around]]
Reread = Callable[[Reading], Reading]


@dataclass(frozen=True)
class Mutation:
    """What breaks `promise`: at the launch, afterwards, in the reading, or several of these.

    `also` may fail with it, for the reason `why`. `by_users` tells whether an ordinary user's
    launch can be weakened so.
    """

    promise: str
    spec: Weaken | None = None
    afterwards: Afterwards | None = None
    read: Reread | None = None
    also: tuple[str, ...] = ()
    why: str = ""
    by_users: bool = True

    @property
    def name(self) -> str:
        """Unique; for people."""
        parts = (self.spec, self.afterwards, self.read)
        return " ".join([self.promise, *(each.__name__ for each in parts if each)])


def _first_thread(change: Callable[[ThreadReading], ThreadReading], reading: Reading) -> Reading:
    def process(each: ProcessReading) -> ProcessReading:
        first, *rest = each.threads
        return replace(each, threads=(change(first), *rest))

    return replace(reading, processes=tuple(process(each) for each in reading.processes))


def uid_of_root(reading: Reading) -> Reading:
    """One thread's file system UID is the host's root."""
    return _first_thread(lambda t: replace(t, uids=(*t.uids[:3], 0)), reading)


def gid_of_root(reading: Reading) -> Reading:
    """One thread's file system GID is the host's root."""
    return _first_thread(lambda t: replace(t, gids=(*t.gids[:3], 0)), reading)


def no_promise_of_a_thread(reading: Reading) -> Reading:
    """One thread may gain privileges."""
    return _first_thread(lambda t: replace(t, no_new_privileges=0), reading)


def in_our(kind: str) -> Reread:
    """One thread is in our namespace."""

    def shared(reading: Reading) -> Reading:
        own = reading.host.namespaces[kind]
        return _first_thread(lambda t: replace(t, namespaces={**t.namespaces, kind: own}), reading)

    shared.__name__ = f"in_our_{kind}_namespace"
    return shared


def with_another_label(reading: Reading) -> Reading:
    """The label of one thread is not the one that was noted at the start."""
    noted = Noted(frozenset({1}), frozenset(), frozenset({"box (enforce)"}))
    found = _first_thread(lambda t: replace(t, label="unconfined"), reading)
    return replace(found, noted=noted)


def memory_without_end(reading: Reading) -> Reading:
    """No limit on memory, though one on memory and swap."""
    assert isinstance(reading.limits, CgroupLimits)
    return replace(reading, limits=replace(reading.limits, memory=None))


_TOGETHER = "UIDs and GIDs of a user namespace are what its maps say"
_MAP_OF_ALL = "the host's user namespace maps every ID to itself"
_NO_LAUNCH = "without it there is no /proc of its own, and the runtime refuses the spec"
_EARLY = "without no_new_privs runc loads the filter before its last steps, which ours refuses"
_MORE_INTERFACES = "the host may have more interfaces than lo"
_V1 = "version 1 holds the limit of both to no less than that of memory"
_OUT = "limits are those of the thread that is held to least"
_SLOT = ("identity.uid", "identity.gid", "identity.uid_map", "identity.gid_map")

MUTATIONS = (
    Mutation("identity.uid", specs.another_slot, also=_SLOT, why=_TOGETHER, by_users=False),
    Mutation("identity.uid", read=uid_of_root, why=_TOGETHER),
    Mutation("identity.gid", read=gid_of_root, why=_TOGETHER),
    Mutation("identity.groups", specs.a_group, by_users=False),
    Mutation("identity.uid_map", specs.fewer_uids, by_users=False),
    Mutation("identity.gid_map", specs.fewer_gids, by_users=False),
    Mutation("capabilities", specs.a_capability),
    Mutation("capabilities", specs.a_capability_to_be_had),
    Mutation("no_new_privs", specs.new_privileges, also=("seccomp.filter",), why=_EARLY),
    Mutation("no_new_privs", read=no_promise_of_a_thread),
    Mutation("seccomp", specs.no_filter),
    Mutation("seccomp", specs.no_filter, afterwards.an_unfiltered_thread),
    Mutation("seccomp.filter", specs.a_filter_of_nothing, by_users=False),
    Mutation("seccomp.filter", specs.a_call_more, by_users=False),
    Mutation("seccomp.filter", specs.another_door, by_users=False),
    Mutation("label", read=with_another_label, why="no security module here labels processes"),
    Mutation("untraced", afterwards=afterwards.a_debugger),
    Mutation("program", afterwards=afterwards.another_program),
    Mutation("environment", specs.the_runtimes_environment),
    Mutation("environment", specs.a_variable),
    Mutation("root", specs.another_directory),
    Mutation("terminal", afterwards=afterwards.a_terminal),
    Mutation(
        "namespace.user",
        specs.no_user_namespace,
        also=("identity.uid_map", "identity.gid_map", "mounts.declared"),
        why=f"{_MAP_OF_ALL}, and in it the runtime makes device nodes where it would bind them",
        by_users=False,
    ),
    Mutation("namespace.user", read=in_our("user"), why=_MAP_OF_ALL),
    Mutation("namespace.mnt", read=in_our("mnt"), why=_NO_LAUNCH),
    Mutation("namespace.pid", read=in_our("pid"), why=_NO_LAUNCH),
    Mutation("namespace.ipc", specs.no_ipc_namespace),
    Mutation("namespace.uts", specs.no_uts_namespace),
    Mutation(
        "namespace.net",
        specs.no_network_namespace,
        also=("network.interfaces",),
        why=_MORE_INTERFACES,
    ),
    Mutation("namespace.net", read=in_our("net"), why=_MORE_INTERFACES),
    Mutation("namespace.cgroup", specs.no_cgroup_namespace),
    Mutation("apart.namespaces", afterwards=afterwards.another_in_its_namespace),
    Mutation("apart.ids", afterwards=afterwards.another_in_its_slot),
    Mutation("network.interfaces", afterwards=afterwards.an_interface),
    Mutation("cgroup.path", afterwards=afterwards.another_cgroup),
    Mutation("cgroup.path", afterwards=afterwards.a_thread_out_of("freezer")),
    Mutation("cgroup.path", afterwards=afterwards.a_thread_below_its_cgroup),
    *(
        Mutation("cgroup.path", None, afterwards.a_thread_out_of(controller), also=also, why=_OUT)
        for controller, also in (
            ("pids", ("limit.pids",)),
            ("memory", ("limit.memory", "limit.swap")),
            ("devices", ("limit.devices",)),
        )
    ),
    Mutation("cgroup.members", afterwards=afterwards.another_process),
    Mutation("limit.pids", specs.no_pids_limit),
    Mutation("limit.pids", afterwards=afterwards.more_threads),
    Mutation("limit.memory", specs.more_memory, also=("limit.swap",), why=_V1),
    Mutation("limit.memory", read=memory_without_end, why=_V1),
    Mutation("limit.memory", afterwards=afterwards.memory_that_hangs),
    Mutation("limit.swap", specs.no_swap_limit),
    Mutation("limit.devices", specs.every_device, by_users=False),
    Mutation("limit.devices", specs.a_disk_of_the_host, by_users=False),
    Mutation("limit.core", specs.core_files),
    Mutation("limit.rlimits", specs.more_files),
    Mutation("limit.rlimits", specs.more_processes),
    Mutation("oom_score", specs.spared_by_the_kernel),
    Mutation("mounts.declared", specs.a_directory_more),
    Mutation("mounts.declared", specs.a_file_system_more),
    Mutation("mounts.declared", specs.a_writable_part),
    Mutation("mounts.declared", specs.a_part_with_setuid),
    Mutation("mounts.declared", specs.another_part),
    Mutation("mounts.declared", specs.a_hidden_part),
    Mutation("mounts.declared", specs.a_writable_root),
    Mutation("mounts.declared", specs.a_writable_dev),
    Mutation("mounts.declared", specs.a_writable_proc),
    Mutation("mounts.declared", specs.a_writable_sysctl),
    Mutation("mounts.masked", specs.an_unmasked_path),
    Mutation("mounts.private", specs.shared_mounts),
    Mutation("files.open", afterwards=afterwards.a_directory_left_open),
    Mutation("files.open", afterwards=afterwards.a_file_left_open),
    Mutation("files.kinds", afterwards=afterwards.a_watch_on_the_host),
    Mutation("files.mapped", afterwards=afterwards.a_file_left_in_memory),
)
