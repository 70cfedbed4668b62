"""Whether the OCI runtime starts a container: a launch's own way, with a program that tells."""

from __future__ import annotations

import os
from pathlib import Path

from reconciler.backends import jail, runtime
from reconciler.backends.jail import Jail
from reconciler.confinement.policy import BindMount, Isolation, Slot, policy_for
from reconciler.engine import slots
from reconciler.engine.host import throwaway
from reconciler.engine.host.check import Seen, failed, not_applicable, ok
from reconciler.engine.host.trying import START_SECONDS, Tries
from reconciler.engine.parts import Progress
from reconciler.images import busybox
from reconciler.linux import identity, procfs
from reconciler.linux.ids import NoSlot
from reconciler.linux.procfs import Status

_RAM_MIB = 128
_FILTER_MODE = 2
_END_SECONDS = 10.0
# One process and no shell: the filter of a VMM lets it make no other one.
_COMMAND = ("/busybox", "dd", "if=/proc/self/status", "of=/data/status", "bs=64k")


def try_container(home: Path, isolation: Isolation, progress: Progress, tries: Tries) -> Seen:
    """Start a container under the policy of a VMM, which writes down what it is.

    It writes to a directory as a shared /data is: the file is the slot's. Raises BoxError, OSError.
    """
    chosen = runtime.find_runtime()
    tries.need(chosen.path)
    runtime.ensure_delegation(chosen)
    progress(f"starting a container under {isolation}")
    with throwaway.place(home) as name:
        try:
            slot = slots.allocate(home, name) if isolation == "strict" else None
        except NoSlot:
            return not_applicable("no slot of subordinate IDs is free to try it with")
        data = home / "sandboxes" / name / "data"
        data.mkdir()
        # The slot's user gets there by the mount alone: the home is private.
        data.chmod(0o777)
        policy = policy_for(
            isolation=isolation,
            ram_mib=_RAM_MIB,
            cpus=1,
            own_uid=os.getuid(),
            own_gid=os.getgid(),
            slot=slot,
            cgroup=runtime.cgroup_path(chosen, name),
            binds=(
                BindMount(str(busybox.find_busybox()), "/busybox"),
                BindMount(str(data), "/data", read_only=False),
            ),
        )
        with tries.on(chosen.path, START_SECONDS):
            said = _run(Jail(home, chosen, name, name, policy))
        return judge(chosen.name, data / "status", slot, said)


def _run(wanted: Jail) -> str:
    """Run the program to its end, and return what it printed."""
    with jail.start(wanted, _COMMAND, pass_fds=()) as started:
        started.wait(START_SECONDS)
        if not _ended(started):
            return "it did not end in time"
        return started.complaint()


def _ended(started: jail.StartedJail) -> bool:
    try:
        who = started.identity()
    except jail.JailFailed:
        return True  # so fast that it has no identity any more
    # The runtime's own process becomes the program, which is another file then.
    same = who._replace(exe_dev=None, exe_ino=None)
    with identity.open_process(same) as process:
        return process is None or process.wait(_END_SECONDS)


def judge(name: str, written: Path, slot: Slot | None, said: str) -> Seen:
    """Whether what the program wrote, its own /proc/PID/status, is that of a VMM in its jail.

    `slot` is that of a strict one, `said` what the program printed.
    """
    try:
        owner = written.stat().st_uid
        status = procfs.parse_status(written.read_bytes())
    except OSError:
        fix = "run `box doctor` again; if it stays so, report it with what this prints"
        return failed(f"{name} started a container that wrote nothing: {said}", fix)
    wanted = slot.uid_base if slot else os.getuid()
    wrong = [what for what, is_so in _expected(status, owner, wanted).items() if not is_so]
    if wrong:
        # Nothing of ours does without: another program than the distribution's stands for it.
        fix = f"install your distribution's own {name}, or its newest version"
        return failed(f"{name} started a container without {', '.join(wrong)}", fix)
    return ok(
        f"{name} started one as UID {owner}: filtered, without capabilities, and wrote to /data"
    )


def _expected(status: Status, owner: int, wanted: int) -> dict[str, bool]:
    return {
        f"UID {wanted} (it has {owner})": owner == wanted,
        "a system call filter": status.seccomp_mode == _FILTER_MODE,
        "no_new_privs": status.no_new_privileges == 1,
        "dropping all capabilities": not (
            status.cap_effective | status.cap_permitted | status.cap_bounding
        ),
        "a process namespace of its own": status.pids_by_namespace[-1:] == (1,),
    }
