"""The filter that the kernel holds is the profile, call by call, whatever a runtime made of it."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.confinement import filters
from reconciler.confinement.policy import SECCOMP_PROFILES, BindMount, Policy, Slot, policy_for
from reconciler.linux import reading, seccomp
from tests.linux import container

pytestmark = pytest.mark.root
ALLOW = 0x7FFF0000
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[os.uname().machine]
NUMBERS = range(1024)  # the newest calls have numbers below 500


@pytest.fixture(scope="module")
def probe() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="box-probe-", dir="/tmp") as directory:
        yield container.build_probe(Path(directory))


def policy(probe: Path, backend: str) -> Policy:
    return policy_for(
        backend=backend,
        isolation="strict",
        ram_mib=128,
        cpus=1,
        own_uid=0,
        own_gid=0,
        slot=Slot(0, 1_800_000_000, 1_800_000_000),
        cgroup=f"/box-test-{os.getpid()}-held-{backend}",
        binds=(BindMount(str(probe), "/bin/vmm"),),
    )


def freely_allowed(profile: str) -> set[int]:
    """The numbers, here, of the calls that are allowed whatever their arguments are."""
    library = ctypes.util.find_library("seccomp")
    if library is None:
        pytest.skip("libseccomp is not installed")
    resolve = ctypes.CDLL(library).seccomp_syscall_resolve_name
    rules = seccomp.oci_seccomp(profile, os.uname().machine)["syscalls"]
    free = (each for each in rules if each["action"] == "SCMP_ACT_ALLOW" and "args" not in each)
    # Below zero: a call that this architecture has not.
    return {
        number for rule in free for name in rule["names"] if (number := resolve(name.encode())) >= 0
    }


@pytest.mark.parametrize("backend", SECCOMP_PROFILES)
def test_the_kernel_holds_what_the_profile_says(probe: Path, backend: str) -> None:
    wanted = policy(probe, backend)
    with container.running(wanted, ["/bin/vmm"]) as who:
        read = reading.read_process(who, wanted)
    (thread,) = read.processes[0].threads
    assert isinstance(thread.programs, tuple)
    (program,) = thread.programs
    passed = {
        number
        for number in NUMBERS
        if filters.run(program, struct.pack("<IIQ6Q", number, ARCHITECTURE, *[0] * 7)) == ALLOW
    }
    assert passed == freely_allowed(SECCOMP_PROFILES[backend])
