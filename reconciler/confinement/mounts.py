"""The mounts a VMM should have, and how those it has differ from them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.confinement.facts import Finding, unreadable
from reconciler.confinement.policy import RUNTIME_DEVICES
from reconciler.confinement.reading import MountReading, MountSource, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.confinement.policy import Policy
    from reconciler.confinement.reading import HostReading

Place = tuple[str, str, str]
"""A mount's target, device and root."""

# The kernel's mark of a file that lost its name, as at an upgrade; no name holds a slash.
_DELETED = "//deleted"
# Per-mount flags; other options belong to the file system.
_FLAGS = frozenset({"ro", "nosuid", "nodev", "noexec"})


@dataclass(frozen=True)
class Expected:
    """One mount: its target, the flags it must have, and what lies there.

    `source` is None where the file system is the kernel's own, of type `fstype`; then `root` is the
    path inside it, None for any.
    """

    target: str
    flags: frozenset[str]
    fstype: str | None = None
    root: str | None = None
    source: MountSource | Unreadable | None = None
    required: bool = True
    exact_ro: bool = True
    replaceable: bool = False


def expected_mounts(policy: Policy, host: HostReading) -> dict[str, tuple[Expected, ...]]:
    """By target, what may lie there: more than one where an OCI runtime has a choice."""
    read_only = frozenset({"ro"}) if policy.read_only_root else frozenset[str]()
    root = Expected("/", read_only | {"nosuid", "nodev"}, fstype="tmpfs")
    wanted: dict[str, tuple[Expected, ...]] = {"/": (root,)}
    for kernel in policy.kernel_mounts:
        flags = _FLAGS & frozenset(kernel.options)
        wanted[kernel.target] = (Expected(kernel.target, flags, kernel.fstype, root="/"),)
    for device in (*RUNTIME_DEVICES, *policy.devices):
        required = device in policy.devices
        source = host.sources[device]
        node = Expected(device, frozenset(), source=source, required=required, exact_ro=False)
        wanted[device] = (node,)
    for path in policy.masked_paths:
        wanted[path] = _masked(path, host)
    for path in policy.read_only_paths:
        root_path = path.removeprefix("/proc")
        flags = frozenset({"ro"})
        wanted[path] = (Expected(path, flags, "proc", root_path, required=path in host.present),)
    for bind in policy.binds:
        flags = frozenset({"nosuid", "nodev"} | ({"ro"} if bind.read_only else set()))
        source = host.sources[bind.source]
        wanted[bind.target] = (
            Expected(bind.target, flags, source=source, replaceable=bind.read_only),
        )
    return wanted


def _masked(path: str, host: HostReading) -> tuple[Expected, ...]:
    # A missing one is told by what is seen at its path (`places.masked`).
    null = host.sources["/dev/null"]
    return (
        # A directory is masked by an empty read-only tmpfs, a file by /dev/null.
        Expected(path, frozenset({"ro"}), "tmpfs", "/", required=False),
        Expected(path, frozenset(), source=null, required=False, exact_ro=False),
    )


def compare(
    mounts: tuple[MountReading, ...],
    policy: Policy,
    host: HostReading,
    places: frozenset[Place] = frozenset(),
) -> Iterator[Finding]:
    """Every extra, missing, hidden or different mount; `places` are those of a start found good."""
    wanted = expected_mounts(policy, host)
    for target, count in Counter(each.target for each in mounts).items():
        if count > 1:
            yield Finding(f"{target} is mounted {count} times, one hiding another")
    for mount in mounts:
        if mount.target not in wanted:
            yield Finding(f"{mount.target} is mounted and was not declared")
            continue
        if problem := _closest_problem(mount, wanted[mount.target], places):
            yield problem
    present = {each.target for each in mounts}
    for target, choices in wanted.items():
        if target not in present and any(each.required for each in choices):
            yield Finding(f"{target} is not mounted")


def _closest_problem(
    mount: MountReading, choices: tuple[Expected, ...], places: frozenset[Place]
) -> Finding | None:
    """What is wrong with the choice that was probably meant; None when one fits."""
    closest = None
    for want in choices:
        problem = _problem(mount, want, places)
        if problem is None:
            return None
        if closest is None or want.fstype == mount.fstype or choices[0].fstype != mount.fstype:
            closest = problem
    return closest


def _problem(mount: MountReading, want: Expected, places: frozenset[Place]) -> Finding | None:
    missing = want.flags - frozenset(mount.options)
    if missing:
        return Finding(f"{mount.target} is not {', '.join(sorted(missing))}")
    if want.exact_ro and "ro" not in want.flags and "ro" in mount.options:
        return Finding(f"{mount.target} is ro")
    # Mounted by its name, it is still the file that was there then, which a start judges.
    root = mount.root.removesuffix(_DELETED) if want.replaceable else mount.root
    if want.replaceable and (mount.target, mount.device, root) in places:
        # Its name may lead elsewhere since, or nowhere: a library's link to a newer version.
        return None
    if isinstance(want.source, Unreadable):
        return unreadable(f"the source of {mount.target}: {want.source.why}")
    if want.source is not None:
        if (mount.device, root) != (want.source.device, want.source.root):
            have = f"{mount.device} {mount.root}"
            return Finding(f"{mount.target} is another file or directory ({have})")
        return None
    if mount.fstype != want.fstype or want.root not in {None, mount.root}:
        return Finding(f"{mount.target} is a {mount.fstype} ({mount.root})")
    return None
