from __future__ import annotations

import json
import re
from typing import Any

import pytest

from reconciler.errors import Missing
from reconciler.linux import seccomp

MACHINES = ("x86_64", "aarch64")
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


def rules(machine: str) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = seccomp.oci_seccomp("qemu", machine)["syscalls"]
    return calls


@pytest.mark.parametrize("machine", MACHINES)
def test_only_what_is_listed_is_allowed(machine: str) -> None:
    filter_ = seccomp.oci_seccomp("qemu", machine)
    assert filter_["defaultAction"] == "SCMP_ACT_ERRNO"
    assert filter_["defaultErrnoRet"] == 1
    # One architecture: 32-bit and x32 entries have none, and libseccomp kills for that.
    assert len(filter_["architectures"]) == 1
    allowed = {
        name
        for rule in rules(machine)
        if rule["action"] == "SCMP_ACT_ALLOW"
        for name in rule["names"]
    }
    assert not allowed & set(FORBIDDEN)
    assert allowed >= {"execve", "read", "write", "mmap", "futex", "recvmsg", "close_range"}


@pytest.mark.parametrize("machine", MACHINES)
def test_clone_makes_threads_only(machine: str) -> None:
    (clone,) = [rule for rule in rules(machine) if "clone" in rule["names"]]
    (arg,) = clone["args"]
    assert (arg["index"], arg["op"]) == (0, "SCMP_CMP_MASKED_EQ")
    mask, datum = arg["value"], arg["valueTwo"]
    thread = 0x3D0F00  # glibc's flags for pthread_create
    assert thread & mask == datum
    assert 0x1200011 & mask != datum  # glibc's fork
    for namespace in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert (thread | namespace) & mask != datum


@pytest.mark.parametrize(
    ("name", "errno"), [("clone3", 38), ("io_uring_setup", 38), ("io_uring_enter", 38)]
)
def test_calls_that_libc_and_qemu_fall_back_from(name: str, errno: int) -> None:
    (rule,) = [rule for rule in rules("x86_64") if name in rule["names"]]
    assert (rule["action"], rule["errnoRet"]) == ("SCMP_ACT_ERRNO", errno)


def test_no_call_is_ruled_on_twice_without_arguments() -> None:
    names = [name for rule in rules("x86_64") if "args" not in rule for name in rule["names"]]
    assert len(names) == len(set(names))


def test_every_group_and_rule_has_a_reason() -> None:
    profile = json.loads(seccomp.profile_path("qemu").read_text())
    for each in (*profile["groups"], *profile["rules"]):
        assert len(each["reason"]) > 10
        assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in each["names"])


@pytest.mark.parametrize("name", ["unconfined", "", "../seccomp/qemu", "qemu.json", "/etc/passwd"])
def test_an_unknown_profile_is_refused(name: str) -> None:
    with pytest.raises(Missing, match=re.escape(repr(name))):
        seccomp.oci_seccomp(name, "x86_64")


def test_an_unknown_machine_is_refused() -> None:
    with pytest.raises(Missing, match="riscv64"):
        seccomp.oci_seccomp("qemu", "riscv64")
