"""The probe in the VMM's exact place: the product's own launch, with another program for QEMU."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reconciler.backends import jail, qemu, runtime, vmm_files
from reconciler.backends.qemu import Launch
from reconciler.backends.runtime import Runtime
from reconciler.backends.vmm_files import VmmFiles
from reconciler.confinement.policy import Isolation, Policy, Slot
from reconciler.images import fingerprint
from reconciler.linux import sockets
from reconciler.linux.identity import ProcessIdentity
from reconciler.vmm.qemu import Machine
from tests.probe.talking import Talk

RAM_MIB = 64
DATA_BYTES = 1 << 20
_CONNECT_SECONDS = 60.0


@dataclass(frozen=True)
class Stand:
    """A probe that was launched as a VMM: what it is held to, its process, and the way to it."""

    launch: Launch
    policy: Policy
    who: ProcessIdentity
    talk: Talk

    def aims(self) -> dict[str, object]:
        """What only a probe in the VMM's place aims at: the policy's limits and its own parts."""
        own = {"part": "/kernel", "own": self.launch.files.binary, "folder": "/", "devices": "/dev"}
        return {**sizes(self.policy), **own}


def sizes(policy: Policy) -> dict[str, object]:
    """A little more of everything than the policy allows."""
    limits = {each.name: each.hard for each in policy.rlimits}
    return {
        "threads": policy.pids_limit + 64,
        "memory": policy.memory_limit_bytes + (64 << 20),
        "file_size": limits["RLIMIT_FSIZE"],
    }


def launch_of(
    home: Path,
    program: Path,
    isolation: Isolation,
    slot: Slot | None,
    chosen: Runtime | None = None,
) -> Launch:
    """The launch of a small emulated VM whose VMM is `program`; its files are made in `home`."""
    chosen = chosen or runtime.find_runtime()
    env = vmm_files.find_env()
    name = f"probe-{secrets.token_hex(4)}"
    folder = home / name
    folder.mkdir(mode=0o700)
    for file in ("kernel", "initrd", "image", "disk", "snapshot"):
        (folder / file).write_bytes(file.encode())
        # As kernels and images are: readable for the slot's UID, writable for nobody else.
        (folder / file).chmod(0o644)
    return Launch(
        home=home,
        runtime=chosen,
        files=VmmFiles(program, fingerprint.library_closure(env), (), (), env),
        name=name,
        group=f"box-test-{secrets.token_hex(4)}",
        directory=folder,
        machine=Machine(os.uname().machine, "tcg", 1, RAM_MIB, DATA_BYTES, readonly=False),
        kernel=folder / "kernel",
        initrd=folder / "initrd",
        image=folder / "image",
        isolation=isolation,
        slot=slot,
        disk=folder / "disk",
        snapshot=folder / "snapshot",
    )


@contextlib.contextmanager
def standing(launch: Launch, wanted: Policy | None = None) -> Iterator[Stand]:
    """Launch it as `qemu.start` does; it is gone afterwards, with every trace.

    `wanted` is what it shall be judged by, the policy of `launch` when not given.
    """
    policy = wanted or launch.policy()
    runtime.ensure_delegation(launch.runtime)
    try:
        with (
            qemu.start(launch, incoming=False, meanwhile=lambda: None) as (_, who),
            sockets.connect_private(
                launch.directory, "p0", timeout_seconds=_CONNECT_SECONDS
            ) as sock,
            contextlib.closing(Talk(sock)) as talk,
        ):
            yield Stand(launch, policy, who, talk)
    finally:
        jail.remove(launch.home, launch.name, policy.cgroup)


def give_disk(stand: Stand, targets: dict[str, object]) -> None:
    """Aim, and hand over the VM's disk as the product does: as a descriptor."""
    with stand.launch.disk.open("r+b") as disk:
        stand.talk.aim({**targets, **stand.aims()}, disk.fileno())
