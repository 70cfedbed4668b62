"""Launches that are weaker by one thing: each changes the OCI spec that the product has rendered.

Also loaded by the program that stands in for the runtime (`weaker.py`), by name; standard library
only.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

Spec = dict[str, Any]
Weaken = Callable[[Spec], None]


def a_capability(spec: Spec) -> None:
    """CAP_NET_RAW in every set."""
    for kind in spec["process"]["capabilities"]:
        spec["process"]["capabilities"][kind] = ["CAP_NET_RAW"]


def a_capability_to_be_had(spec: Spec) -> None:
    """None now, but one that executing a file may give."""
    spec["process"]["capabilities"]["bounding"] = ["CAP_SYS_ADMIN"]


def new_privileges(spec: Spec) -> None:
    """The filter is loaded earlier then, and would refuse the runtime's own last steps."""
    spec["process"]["noNewPrivileges"] = False
    _allow_all(spec)


def the_runtimes_environment(spec: Spec) -> None:
    """The VMM at once, and no env(1) before it: with what runtimes set."""
    del spec["process"]["args"][:2]


def a_variable(spec: Spec) -> None:
    """One variable, which might hold anything."""
    spec["process"]["args"].insert(2, "A_TOKEN=secret")


def no_filter(spec: Spec) -> None:
    """No seccomp at all."""
    del spec["linux"]["seccomp"]


def no_ipc_namespace(spec: Spec) -> None:
    """The host's IPC."""
    _without(spec, "ipc")


def no_uts_namespace(spec: Spec) -> None:
    """The host's name."""
    _without(spec, "uts")
    del spec["hostname"]


def no_network_namespace(spec: Spec) -> None:
    """The host's network."""
    _without(spec, "network")


def no_cgroup_namespace(spec: Spec) -> None:
    """The host's cgroup root."""
    _without(spec, "cgroup")


def no_user_namespace(spec: Spec) -> None:
    """The slot's IDs, but in the host's user namespace."""
    user = spec["process"]["user"]
    user["uid"] += spec["linux"].pop("uidMappings")[0]["hostID"]
    user["gid"] += spec["linux"].pop("gidMappings")[0]["hostID"]
    _without(spec, "user")


def _without(spec: Spec, kind: str) -> None:
    spaces = spec["linux"]["namespaces"]
    spec["linux"]["namespaces"] = [each for each in spaces if each["type"] != kind]


def a_directory_more(spec: Spec) -> None:
    """The host's /etc with all that is mounted below, read-only."""
    mount = {"destination": "/etc", "type": "bind", "source": "/etc"}
    spec["mounts"].append({**mount, "options": ["rbind", "ro", "nosuid", "nodev"]})


def a_file_system_more(spec: Spec) -> None:
    """A tmpfs to write into."""
    mount = {"destination": "/scratch", "type": "tmpfs", "source": "tmpfs"}
    spec["mounts"].append({**mount, "options": ["nosuid", "nodev"]})


def _kernel(spec: Spec) -> Spec:
    found: Spec = next(each for each in spec["mounts"] if each["destination"] == "/kernel")
    return found


def a_writable_part(spec: Spec) -> None:
    """The guest's kernel without `ro`."""
    _kernel(spec)["options"].remove("ro")


def a_part_with_setuid(spec: Spec) -> None:
    """The guest's kernel without `nosuid`."""
    _kernel(spec)["options"].remove("nosuid")


def another_part(spec: Spec) -> None:
    """The right name, another file."""
    copy = _kernel(spec)["source"] + "-copy"
    shutil.copy(_kernel(spec)["source"], copy)
    _kernel(spec)["source"] = copy


def a_hidden_part(spec: Spec) -> None:
    """Below the visible mount may lie anything."""
    spec["mounts"].append(_kernel(spec))


def a_writable_root(spec: Spec) -> None:
    """Files can be made in the jail's root."""
    spec["root"]["readonly"] = False


def _kernel_mount(spec: Spec, target: str) -> Spec:
    found: Spec = next(each for each in spec["mounts"] if each["destination"] == target)
    return found


def a_writable_dev(spec: Spec) -> None:
    """Files can be made in /dev."""
    _kernel_mount(spec, "/dev")["options"].remove("ro")


def a_writable_proc(spec: Spec) -> None:
    """Its own score, memory and maps can be written."""
    _kernel_mount(spec, "/proc")["options"].remove("ro")


def a_writable_sysctl(spec: Spec) -> None:
    """/proc/sys is what /proc is."""
    spec["linux"]["readonlyPaths"].remove("/proc/sys")


def an_unmasked_path(spec: Spec) -> None:
    """The kernel's list of keys can be read."""
    spec["linux"]["maskedPaths"].remove("/proc/keys")


def shared_mounts(spec: Spec) -> None:
    """What is mounted on the host there later appears in the jail."""
    spec["linux"]["rootfsPropagation"] = "slave"
    _kernel(spec)["options"].append("shared")


def no_swap_limit(spec: Spec) -> None:
    """Memory beyond the limit goes to swap."""
    del spec["linux"]["resources"]["memory"]["swap"]


def more_memory(spec: Spec) -> None:
    """Memory and swap, a byte's page beyond."""
    memory = spec["linux"]["resources"]["memory"]
    spec["linux"]["resources"]["memory"] = {name: size + 4096 for name, size in memory.items()}


def no_pids_limit(spec: Spec) -> None:
    """As many threads as the user may have."""
    del spec["linux"]["resources"]["pids"]


def every_device(spec: Spec) -> None:
    """What version 1 of cgroups makes of a rule for all."""
    _device(spec, type="a")


def a_disk_of_the_host(spec: Spec) -> None:
    """Any SCSI disk."""
    _device(spec, type="b", major=8)


def _device(spec: Spec, **rule: object) -> None:
    spec["linux"]["resources"].setdefault("devices", []).append(
        {"allow": True, "access": "rwm", **rule}
    )


def core_files(spec: Spec) -> None:
    """None at first, but it may allow them."""
    _rlimit(spec, "RLIMIT_CORE")["hard"] = 1 << 20


def more_files(spec: Spec) -> None:
    """One descriptor more than it may have."""
    _rlimit(spec, "RLIMIT_NOFILE").update(soft=1025, hard=1025)


def more_processes(spec: Spec) -> None:
    """The rlimit on processes is whoever launches it has."""
    limits = spec["process"]["rlimits"]
    spec["process"]["rlimits"] = [each for each in limits if each["type"] != "RLIMIT_NPROC"]


def _rlimit(spec: Spec, name: str) -> Spec:
    found: Spec = next(each for each in spec["process"]["rlimits"] if each["type"] == name)
    return found


def spared_by_the_kernel(spec: Spec) -> None:
    """As likely to be ended as box when memory runs out."""
    spec["process"]["oomScoreAdj"] = 0


def a_group(spec: Spec) -> None:
    """A supplementary group of the slot's."""
    spec["process"]["user"]["additionalGids"] = [27]


def another_slot(spec: Spec) -> None:
    """The 65,536 IDs beside its own."""
    for kind in ("uidMappings", "gidMappings"):
        spec["linux"][kind][0]["hostID"] += 65_536


def fewer_uids(spec: Spec) -> None:
    """A thousand UIDs of its own only."""
    spec["linux"]["uidMappings"][0]["size"] = 1000


def fewer_gids(spec: Spec) -> None:
    """A thousand GIDs of its own only."""
    spec["linux"]["gidMappings"][0]["size"] = 1000


def a_filter_of_nothing(spec: Spec) -> None:
    """A filter is on, and lets all through."""
    _allow_all(spec)


def _allow_all(spec: Spec) -> None:
    seccomp = spec["linux"]["seccomp"]
    seccomp["defaultAction"] = "SCMP_ACT_ALLOW"
    # crun refuses an error for what is allowed.
    seccomp.pop("defaultErrnoRet", None)


def a_call_more(spec: Spec) -> None:
    """The filter, and ptrace."""
    rule = {"names": ["ptrace"], "action": "SCMP_ACT_ALLOW"}
    spec["linux"]["seccomp"]["syscalls"].append(rule)


def another_door(spec: Spec) -> None:
    """The filter, and calls by x32 numbers."""
    spec["linux"]["seccomp"]["architectures"].append("SCMP_ARCH_X32")


def another_directory(spec: Spec) -> None:
    """It starts somewhere else than in its root."""
    spec["process"]["cwd"] = "/proc"


def in_the_ipc_namespace_of(spec: Spec, pid: int) -> None:
    """IPC is shared with another sandbox."""
    for space in spec["linux"]["namespaces"]:
        if space["type"] == "ipc":
            space["path"] = f"/proc/{pid}/ns/ipc"
