"""Stand-ins for VMMs in the real jail: a static program with a VMM's threads and mounts."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.backends import jail, runtime, vmm_files
from reconciler.backends.jail import Jail
from reconciler.confinement.policy import SLOT_SIZE, BindMount, Policy, Slot, policy_for
from reconciler.linux import cgroups, ids, subids
from reconciler.linux.cgroups import Layout
from reconciler.linux.identity import ProcessIdentity

_HIGH = 3_400_000_000
_PROGRAM = r"""
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static void *idle(void *nothing) { for (;;) poll(NULL, 0, -1); return nothing; }
int main(int argc, char **argv)
{
    pthread_t thread;
    /* As a VMM, without what the OCI runtime sets. */
    if (*environ)
        execve("/proc/self/exe", argv, (char *[]){ NULL });
    for (int i = 1; i < atoi(argv[1]); i++)
        if (pthread_create(&thread, NULL, idle, NULL))
            return 1;
    if (write(3, "r", 1) != 1 || close(3))
        return 1;
    idle(NULL);
}
"""


@dataclass(frozen=True)
class StandIn:
    """One that runs: who it is, and what it is held to."""

    who: ProcessIdentity
    policy: Policy
    layout: Layout


def build(directory: Path) -> Path:
    """Compile the program; needs a C compiler."""
    program, source = directory / "standin", directory / "standin.c"
    source.write_text(_PROGRAM)
    command = ["cc", "-O1", "-static", "-pthread", "-o", str(program), str(source)]
    subprocess.run(command, check=True, timeout=60)
    program.chmod(0o755)
    return program


@contextlib.contextmanager
def running(home: Path, program: Path, threads: Sequence[int]) -> Iterator[list[StandIn]]:
    """Stand-ins with so many threads each, as many mounts as QEMU and a slot of their own."""
    with contextlib.ExitStack() as stack:
        files = vmm_files.find_vmm_files(home, os.uname().machine)
        libraries = (files.binary, *files.libraries, *files.plugins, *files.firmware)
        binds = tuple(BindMount(str(path), str(path)) for path in libraries)
        uid, gid = os.getuid(), os.getgid()
        slots = _slots(uid, len(threads))
        chosen = runtime.find_runtime()
        runtime.ensure_delegation(chosen)
        found = []
        for number, count in enumerate(threads):
            group = f"bench-{secrets.token_hex(4)}"
            policy = policy_for(
                isolation="strict",
                ram_mib=128,
                cpus=1,
                own_uid=uid,
                own_gid=gid,
                slot=slots[number],
                cgroup=runtime.cgroup_path(chosen, group),
                binds=(BindMount(str(program), "/bin/vmm"), *binds),
            )
            one = Jail(home, chosen, group, group, policy)
            who = stack.enter_context(_started(one, count))
            found.append(StandIn(who, policy, cgroups.detect()))
        yield found


def _slots(uid: int, count: int) -> Sequence[Slot]:
    if uid == 0:
        # Root may map any IDs, and no host gives it so many: high ones, which nobody has.
        bases = [_HIGH + number * SLOT_SIZE for number in range(count)]
        return [Slot(number, base, base) for number, base in enumerate(bases)]
    slots = ids.slots(subids.ranges_of(subids.read_tables(), subids.user_name(uid), uid))
    if len(slots) < count:
        raise RuntimeError(f"{count} stand-ins need {count} slots, and this user has {len(slots)}")
    return slots


@contextlib.contextmanager
def _started(one: Jail, threads: int) -> Iterator[ProcessIdentity]:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        with jail.start(one, ["/bin/vmm", str(threads)], pass_fds=[writer]) as started:
            os.close(writer)
            started.wait()
            if os.read(reader, 1) != b"r":
                raise RuntimeError(started.complaint())
            who = started.identity()
        yield who
    finally:
        os.close(reader)
        jail.remove(one.home, one.name, one.policy.cgroup)
