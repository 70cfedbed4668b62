from __future__ import annotations

import ctypes
import ctypes.util
import json
import re
from typing import Any

import pytest

from reconciler.confinement.policy import SECCOMP_PROFILES
from reconciler.errors import Missing
from reconciler.linux import seccomp

MACHINES = ("x86_64", "aarch64")
PROFILES = tuple(SECCOMP_PROFILES.values())
# What is forbidden to the one and the other cannot do without; ruled on by arguments, or useless
# without what is: see the tests below.
NEEDED: dict[str, set[str]] = {"qemu": set(), "firecracker": {"socket", "bind", "tkill"}}
# What a VMM with no capability could still do with them: containers' default profiles allow most.
FORBIDDEN = """
    unshare setns mount umount2 pivot_root chroot move_mount open_tree fsopen fsmount fspick
    mount_setattr ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp
    add_key keyctl request_key bpf perf_event_open userfaultfd personality modify_ldt
    setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset
    init_module finit_module delete_module kexec_load reboot swapon fork vfork execveat
    socket socketpair connect bind mknod mknodat symlink link rename unlink chmod chown setxattr
    open_by_handle_at name_to_handle_at io_setup fanotify_init quotactl syslog acct iopl ioperm
    kill tkill pidfd_open pidfd_send_signal mlockall sched_setaffinity sched_setscheduler
""".split()


def rules(profile: str, machine: str) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = seccomp.oci_seccomp(profile, machine)["syscalls"]
    return calls


def ruled(profile: str, name: str) -> list[dict[str, Any]]:
    return [rule for rule in rules(profile, "x86_64") if name in rule["names"]]


def values(profile: str, name: str, index: int) -> set[int]:
    """What argument `index` must be for the call to be allowed; no rule may leave it open."""
    found = set()
    for rule in ruled(profile, name):
        (arg,) = [each for each in rule["args"] if each["index"] == index]
        assert (arg["op"], arg["value"]) == ("SCMP_CMP_MASKED_EQ", 0xFFFFFFFF)
        found.add(arg["valueTwo"])
    return found


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("machine", MACHINES)
def test_only_what_is_listed_is_allowed(machine: str, profile: str) -> None:
    filter_ = seccomp.oci_seccomp(profile, machine)
    assert filter_["defaultAction"] == "SCMP_ACT_ERRNO"
    assert filter_["defaultErrnoRet"] == 1
    # One architecture: 32-bit and x32 entries have none, and libseccomp kills for that.
    assert len(filter_["architectures"]) == 1
    allowed = {
        name
        for rule in rules(profile, machine)
        if rule["action"] == "SCMP_ACT_ALLOW"
        for name in rule["names"]
    }
    assert allowed & set(FORBIDDEN) == NEEDED[profile]
    assert allowed >= {"execve", "read", "write", "mmap", "futex", "recvmsg", "close_range"}


@pytest.mark.parametrize("profile", PROFILES)
def test_clone_makes_threads_only(profile: str) -> None:
    (clone,) = ruled(profile, "clone")
    (arg,) = clone["args"]
    assert (arg["index"], arg["op"]) == (0, "SCMP_CMP_MASKED_EQ")
    mask, datum = arg["value"], arg["valueTwo"]
    thread = 0x3D0F00  # glibc's flags for pthread_create
    assert thread & mask == datum
    assert 0x7D0F00 & mask == datum  # musl's
    assert 0x1200011 & mask != datum  # glibc's fork
    for namespace in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert (thread | namespace) & mask != datum


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", ["clone3", "io_uring_setup", "io_uring_enter"])
def test_calls_that_a_libc_or_a_vmm_falls_back_from(name: str, profile: str) -> None:
    (rule,) = ruled(profile, name)
    assert (rule["action"], rule["errnoRet"]) == ("SCMP_ACT_ERRNO", 38)


def test_firecracker_makes_only_unix_sockets_for_streams() -> None:
    assert values("firecracker", "socket", 0) == {1}
    assert values("firecracker", "socket", 1) == {0x80001}  # SOCK_STREAM | SOCK_CLOEXEC
    assert values("firecracker", "socket", 2) == {0}


def test_firecracker_signals_its_threads_for_an_abort_and_a_kick_only() -> None:
    assert values("firecracker", "tkill", 1) == {6, 35}


@pytest.mark.parametrize("profile", PROFILES)
def test_what_prctl_may_do_is_listed(profile: str) -> None:
    # Not: a subreaper, securebits, another personality's layout, ptracers, ambient capabilities.
    allowed = {3, 4, 15, 16, 21, 22, 23, 29, 33, 38, 39, 0x53564D41}
    assert values(profile, "prctl", 0) <= allowed


@pytest.mark.parametrize("profile", PROFILES)
def test_no_call_is_ruled_on_twice_without_arguments(profile: str) -> None:
    free = [
        name for rule in rules(profile, "x86_64") if "args" not in rule for name in rule["names"]
    ]
    bound = {name for rule in rules(profile, "x86_64") if "args" in rule for name in rule["names"]}
    assert len(free) == len(set(free))
    assert not set(free) & bound


@pytest.mark.parametrize("profile", PROFILES)
def test_every_group_and_rule_has_a_reason(profile: str) -> None:
    written = json.loads(seccomp.profile_path(profile).read_text())
    for each in (*written["groups"], *written["rules"]):
        assert len(each["reason"]) > 10
        assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in each["names"])


@pytest.mark.parametrize("profile", PROFILES)
def test_every_name_is_a_system_call(profile: str) -> None:
    """Runtimes skip a name that their libseccomp does not know: a slip of the pen would refuse."""
    library = ctypes.util.find_library("seccomp")
    if library is None:
        pytest.skip("libseccomp is not installed")
    resolve = ctypes.CDLL(library).seccomp_syscall_resolve_name
    assert resolve(b"no_such_call") == -1
    names = {name for rule in rules(profile, "x86_64") for name in rule["names"]}
    assert {name for name in names if resolve(name.encode()) == -1} == set()


@pytest.mark.parametrize("name", ["unconfined", "", "../seccomp/qemu", "qemu.json", "/etc/passwd"])
def test_an_unknown_profile_is_refused(name: str) -> None:
    with pytest.raises(Missing, match=re.escape(repr(name))):
        seccomp.oci_seccomp(name, "x86_64")


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(Missing, match="riscv64"):
        seccomp.oci_seccomp("qemu", "riscv64")
