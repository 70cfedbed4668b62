"""All checks of the doctor, in their order, each tried for real as the user whose sandboxes run."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path

from reconciler.backends import runtime
from reconciler.backends.jail import JailFailed
from reconciler.engine.host import (
    container,
    guest,
    limits,
    posture,
    programs,
    ranges,
    reads,
    room,
    throwaway,
    versions,
)
from reconciler.engine.host.bearings import bearing_of
from reconciler.engine.host.check import Check, Group, Seen, failed, not_applicable, ok
from reconciler.engine.host.namespaces import check_namespaces
from reconciler.engine.host.trying import START_SECONDS, NotTried, Tries
from reconciler.engine.parts import Progress
from reconciler.errors import BoxError, Missing, as_box_error
from reconciler.guest import build
from reconciler.linux import cgroups, process
from reconciler.linux.subids import BrokenTable
from reconciler.vmm import qemu

Probe = Callable[[], Seen]

_NEEDED = (
    "runtime",
    "qemu",
    "kernel",
    "agent",
    "images",
    "namespaces",
    "ids",
    "cgroups",
    "container.strict",
    "container.standard",
    "accelerator.strict",
    "accelerator.standard",
    "reading.filter",
    "reading.label",
)
_CAPACITY = ("slots", "memory", "disk", "inodes")
_COMPONENTS = ("runc", "crun", "qemu", "podman")
_GROUPS: dict[str, Group] = {
    **dict.fromkeys(_NEEDED, Group.NEEDED),
    **dict.fromkeys(_CAPACITY, Group.CAPACITY),
    **{f"version.{name}": Group.HOST for name in _COMPONENTS},
    **dict.fromkeys(posture.LOOKS, Group.HOST),
}
IDS = tuple(_GROUPS)
"""Every check's id. They stay the same for ever: scripts name them."""


def check_host(home: Path, progress: Progress, *, boot: bool = False) -> tuple[Check, ...]:
    """Make every check; nothing of them is left, whatever breaks them off.

    A second or two, and with `boot`, or once per boot of the host, what a guest takes to boot. A
    program that hangs costs ten or twenty seconds, once.
    """
    throwaway.sweep(home)
    try:
        return _check_all(home, progress, boot=boot)
    except KeyboardInterrupt:
        # It may have come while something was being taken away.
        throwaway.sweep_own(home)
        raise


def _check_all(home: Path, progress: Progress, *, boot: bool) -> tuple[Check, ...]:
    tries = Tries(progress)
    probes = _probes(home, progress, tries, boot=boot)
    found: dict[str, Seen] = {}
    # What a trial takes for a moment does not count as held.
    for check_id in sorted(IDS, key=lambda each: _GROUPS[each] is not Group.CAPACITY):
        tries.check_id = check_id
        found[check_id] = _seen(probes[check_id], home)
    return tuple(
        Check(each, group, found[each], os.getuid(), bearing_of(each, found[each]))
        for each, group in _GROUPS.items()
    )


def _seen(probe: Probe, home: Path) -> Seen:
    try:
        return probe()
    except NotTried as unasked:
        return not_applicable(unasked.brief)
    except (BoxError, OSError) as raised:
        error = as_box_error(raised)
        if _is_full(raised):
            found = f"the file system of {home} is full"
            return failed(found, f"free some disk space: du -sh {shlex.quote(str(home))}/*")
        told = "; ".join([error.brief.rstrip("."), *(error.details or "").split("\n")[:6]])
        return failed(told.rstrip("; "), _fix(raised, error.hint))


def _is_full(raised: BoxError | OSError) -> bool:
    """Whether it is for want of room, told by a call of ours or by a program."""
    if isinstance(raised, OSError):
        return raised.errno in {errno.ENOSPC, errno.EDQUOT}
    return os.strerror(errno.ENOSPC) in (raised.details or "")


def _fix(raised: BoxError | OSError, hint: str | None) -> str:
    if isinstance(raised, JailFailed):
        # Its hint is to ask the doctor.
        return (
            "mend what it complains of; where nothing else has failed, install your "
            "distribution's own OCI runtime again"
        )
    return hint or _last_resort(raised)


def _last_resort(raised: BoxError | OSError) -> str:
    if isinstance(raised, BrokenTable):
        return "correct that line: subuid(5), passwd(5)"
    if isinstance(raised, process.CommandFailed):
        return "run that command yourself, and mend what it complains of"
    place = getattr(raised, "filename", None)
    if place:
        return f"let UID {os.getuid()} use {place}: ls -ld {place}"
    return "box quickstart"


def _probes(home: Path, progress: Progress, tries: Tries, *, boot: bool) -> dict[str, Probe]:
    tree = posture.Tree(Path("/"), os.getuid(), cgroups.detect().kind)
    return {
        "runtime": partial(programs.try_runtime, tries),
        "qemu": partial(programs.try_qemu, home, tries),
        "kernel": partial(programs.try_kernel, home),
        "agent": partial(programs.try_agent, progress),
        "images": partial(programs.try_images, home, tries),
        "namespaces": partial(_namespaces, tries),
        "ids": ranges.look,
        "cgroups": partial(limits.try_limits, home),
        "container.strict": partial(container.try_container, home, "strict", progress, tries),
        "container.standard": _standard(
            partial(container.try_container, home, "standard", progress, tries)
        ),
        "accelerator.strict": partial(guest.try_guest, home, "strict", progress, tries, boot=boot),
        "accelerator.standard": _standard(
            partial(guest.try_guest, home, "standard", progress, tries, boot=boot)
        ),
        "reading.filter": reads.read_filter,
        "reading.label": reads.read_label,
        "slots": room.look_slots,
        "memory": room.look_memory,
        "disk": partial(room.look_disk, home),
        "inodes": partial(room.look_inodes, home),
        **{f"version.{name}": partial(_version, name, tries) for name in _COMPONENTS},
        **{name: partial(look, tree) for name, look in posture.LOOKS.items()},
    }


def _namespaces(tries: Tries) -> Seen:
    with tries.on(process.require_program("true", "coreutils"), START_SECONDS):
        return ok(f"made {check_namespaces()}")


def _standard(probe: Probe) -> Probe:
    """Under root there is no standard sandbox: its VMM would be root."""
    if os.getuid() != 0:
        return probe
    return lambda: not_applicable("root's sandboxes are strict: a VMM must never run as root")


def _version(component: str, tries: Tries) -> Seen:
    name = qemu.binary_name(build.host_architecture()) if component == "qemu" else component
    program = process.find_program(name)
    return versions.look(component, program, tries, used=_is_used(component))


def _is_used(component: str) -> bool:
    if component not in {"runc", "crun"}:
        return True
    try:
        return runtime.find_runtime().name == component
    except Missing:
        return False
