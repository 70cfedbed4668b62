"""The checks of what a VMM was started with and where it is: root, masks, terminal, descriptors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.confinement.facts import Fact, Finding, conclude, unreadable
from reconciler.confinement.reading import PlaceReading, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.confinement.policy import Policy
    from reconciler.confinement.reading import MappedReading, ProcessReading, Reading

# "" are files, pipes, sockets and memory.
_KINDS = frozenset({"", "eventfd", "eventpoll", "signalfd", "timerfd", "kvm-vm"})
_VCPU = "kvm-vcpu:"
_VCPU_MEMORY = "anon_inode:kvm-vcpu:"


def root(_policy: Policy, reading: Reading) -> Fact:
    """The root directory and the working directory, which every thread has of its own."""
    found = [each for process in reading.processes for each in _wrong_root(process)]
    return conclude("root", "/ of the jail", found, "/ of the jail")


def _wrong_root(process: ProcessReading) -> Iterator[Finding]:
    where = f"PID {process.pid}"
    for name, place in (("root", process.root), ("working directory", process.directory)):
        target = _target(process, place)
        if isinstance(target, Unreadable):
            yield unreadable(f"{where}: {target.why}")
        elif isinstance(place, PlaceReading) and (target, place.text) != ("/", "/"):
            known = "" if target else ", on a mount that it does not have"
            yield Finding(f"{where}: its {name} is {place.text}{known}")
    leader = process.threads[0].root
    for thread in process.threads:
        for have in (thread.root, thread.directory):
            if isinstance(have, Unreadable):
                yield unreadable(f"{where} thread {thread.tid}: {have.why}")
            elif have != leader and not isinstance(leader, Unreadable):
                yield Finding(f"{where} thread {thread.tid}: it is somewhere else")


def _target(process: ProcessReading, place: PlaceReading | Unreadable) -> str | Unreadable | None:
    """Where the mount that `place` is on lies in the jail, None when it is none of the jail's."""
    if isinstance(place, Unreadable):
        return place
    if isinstance(process.mounts, Unreadable):
        return process.mounts
    for mount in process.mounts:
        if mount.mount_id == place.mount_id:
            return mount.target
    return None


def program(policy: Policy, reading: Reading) -> Fact:
    """The program that runs is on one of the declared mounts, which are judged by themselves."""
    declared = {each.target for each in policy.binds}
    found = []
    for process in reading.processes:
        target = _target(process, process.program)
        if isinstance(target, Unreadable):
            found.append(unreadable(f"PID {process.pid}: {target.why}"))
        elif target not in declared and isinstance(process.program, PlaceReading):
            found.append(Finding(f"PID {process.pid}: {process.program.text}"))
    return conclude("program", "a declared one", found, "a declared one")


def environment(policy: Policy, reading: Reading) -> Fact:
    """The environment it was started with: as long as that of the policy, which is empty."""
    wanted = sum(len(f"{name}={value}".encode()) + 1 for name, value in policy.environment)
    found = []
    for process in reading.processes:
        have = process.environment_bytes
        if isinstance(have, Unreadable):
            found.append(unreadable(f"PID {process.pid}: {have.why}"))
        elif have != wanted:
            found.append(Finding(f"PID {process.pid}: {have} bytes"))
    want = f"{wanted} bytes" if wanted else "empty"
    return conclude("environment", want, found, want)


def masked(_policy: Policy, reading: Reading) -> Fact:
    """What hides the host's secrets in /proc does hide them, whatever mountinfo says."""
    found = []
    for process in reading.processes:
        have = process.masked
        if isinstance(have, Unreadable):
            found.append(unreadable(f"PID {process.pid}: {have.why}"))
            continue
        found += [
            Finding(f"{path} is {what}")
            for path, what in have.items()
            if what not in {"null", "empty", "absent"}
        ]
    return conclude("mounts.masked", "all masked", found, "all masked")


def mapped(_policy: Policy, reading: Reading) -> Fact:
    """The files in its memory, which stay there when their descriptors have been closed."""
    found: list[Finding] = []
    count = 0
    for process in reading.processes:
        if isinstance(process.mapped, Unreadable):
            found.append(unreadable(f"PID {process.pid}: {process.mapped.why}"))
        else:
            count += len(process.mapped)
            found += _foreign(process, process.mapped, reading)
    want = "only its own parts, memory and KVM's"
    return conclude("files.mapped", want, found, f"{want}, among {count}")


def _foreign(
    process: ProcessReading, all_of_it: tuple[MappedReading, ...], reading: Reading
) -> Iterator[Finding]:
    parts, mounts = process.parts, process.mounts
    if isinstance(parts, Unreadable) or isinstance(mounts, Unreadable):
        why = parts.why if isinstance(parts, Unreadable) else "its mounts could not be read"
        yield unreadable(f"PID {process.pid}: {why}")
        return
    # Before Linux 6.8 a file of an overlay is shown with the inode that it has below.
    unlike = {each.target for each in mounts if each.fstype == "overlay"}
    for each in all_of_it:
        if each.device == reading.host.memory_device:
            continue
        if each.device == reading.host.kernel_device and each.name.startswith(_VCPU_MEMORY):
            continue
        name = each.name.removesuffix(" (deleted)")
        if name in parts and (parts[name] == each.inode or name in unlike):
            continue
        yield Finding(f"PID {process.pid}: {each.name} (device {each.device}, inode {each.inode})")


def terminal(_policy: Policy, reading: Reading) -> Fact:
    """The controlling terminal, into which its owner's input could be forged."""
    found = []
    for process in reading.processes:
        if isinstance(process.tty, Unreadable):
            found.append(unreadable(f"PID {process.pid}: {process.tty.why}"))
        elif process.tty:
            found.append(Finding(f"PID {process.pid}: device {process.tty}"))
    return conclude("terminal", "none", found, "none")


def kinds(_policy: Policy, reading: Reading) -> Fact:
    """What the open descriptors are, beside files."""
    found = []
    for process in reading.processes:
        if isinstance(process.files, Unreadable):
            found.append(unreadable(f"PID {process.pid}: {process.files.why}"))
            continue
        found += [
            Finding(f"fd {file.fd} is a {file.kind}")
            for file in process.files
            if file.kind not in _KINDS and not file.kind.startswith(_VCPU)
        ]
    want = "files, pipes, sockets, memory, events and timers"
    return conclude("files.kinds", want, found, want)
