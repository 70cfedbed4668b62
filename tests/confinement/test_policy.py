from __future__ import annotations

import dataclasses

import pytest

from reconciler.confinement.policy import (
    SLOT_SIZE,
    BindMount,
    IdRange,
    Isolation,
    Policy,
    Slot,
    policy_for,
)
from reconciler.errors import Refused

SLOT = Slot(3, 300_000, 500_000)
BIND = BindMount("/host", "/guest")


def policy(
    *,
    isolation: Isolation = "strict",
    ram_mib: int = 2048,
    cpus: int = 2,
    own_uid: int = 1000,
    slot: Slot | None = SLOT,
    largest_file_bytes: int = 1 << 40,
    backend: str = "qemu",
) -> Policy:
    return policy_for(
        isolation=isolation,
        ram_mib=ram_mib,
        cpus=cpus,
        own_uid=own_uid,
        own_gid=1001,
        slot=slot,
        cgroup="/box-1000/vm",
        binds=(BIND,),
        devices=("/dev/kvm",),
        open_files=("/disk",),
        largest_file_bytes=largest_file_bytes,
        backend=backend,
    )


def test_strict_maps_the_whole_slot_and_nothing_else() -> None:
    found = policy()
    assert found.uid_map == (IdRange(0, 300_000, SLOT_SIZE),)
    assert found.gid_map == (IdRange(0, 500_000, SLOT_SIZE),)


def test_standard_maps_the_user_and_nothing_else() -> None:
    found = policy(isolation="standard", slot=None)
    assert found.uid_map == (IdRange(0, 1000, 1),)
    assert found.gid_map == (IdRange(0, 1001, 1),)


def test_each_backend_has_its_own_seccomp_profile() -> None:
    profiles = {each: policy(backend=each).seccomp_profile for each in ("qemu", "firecracker")}
    assert profiles == {"qemu": "qemu", "firecracker": "firecracker"}


@pytest.mark.parametrize("backend", ["krun", "podman", "", "qemu.json"])
def test_a_backend_without_a_seccomp_profile_is_refused(backend: str) -> None:
    with pytest.raises(Refused, match="no seccomp profile"):
        policy(backend=backend)


def test_strict_without_a_slot_is_refused() -> None:
    with pytest.raises(Refused):
        policy(slot=None)


def test_standard_under_root_is_refused() -> None:
    with pytest.raises(Refused) as caught:
        policy(isolation="standard", own_uid=0)
    assert "strict" in (caught.value.hint or "")


@pytest.mark.parametrize("isolation", ["strict", "standard"])
def test_what_no_vmm_gets(isolation: Isolation) -> None:
    found = policy(isolation=isolation)
    assert found.capabilities == ()
    assert found.no_new_privileges
    assert found.read_only_root
    assert found.environment == ()
    assert set(found.namespaces) == {"user", "mnt", "pid", "ipc", "uts", "net", "cgroup"}
    assert ("RLIMIT_CORE", 0) in {(each.name, each.hard) for each in found.rlimits}
    assert found.oom_score_adj > 0


def test_limits_follow_the_boxfile() -> None:
    assert policy(ram_mib=128).memory_limit_bytes == (128 + 256) << 20
    assert policy(cpus=16).pids_limit == policy(cpus=2).pids_limit + 14
    largest = policy(largest_file_bytes=5).rlimits
    assert ("RLIMIT_FSIZE", 5, 5) in {(each.name, each.soft, each.hard) for each in largest}


def test_declared_paths_are_passed_on() -> None:
    found = policy()
    assert found.binds == (BIND,)
    assert BIND.read_only
    assert found.devices == ("/dev/kvm",)
    assert found.open_files == ("/dev/null", "/disk")


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy().pids_limit = 5  # type: ignore[misc]
