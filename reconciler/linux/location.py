"""Where things of the host lie, and whether one is, contains or lies inside another.

A thing is known in two ways: by identity, stat(2)'s (st_dev, st_ino), which no name changes; and by
place, mountinfo's (device, path within the file system), which no bind mount changes. Only like is
compared with like: btrfs and overlayfs number a device differently in the two.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from reconciler.linux import procfs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.linux.procfs import MountEntry


class Identity(NamedTuple):
    """stat(2)'s st_dev and st_ino."""

    device: int
    inode: int


class Place(NamedTuple):
    """Where something lies in its file system; `device` is mountinfo's major:minor."""

    device: str
    path: str

    def holds(self, other: Place) -> bool:
        """Whether `other` is this place or lies in it."""
        return self.device == other.device and is_within(other.path, self.path)


@dataclass(frozen=True, slots=True)
class Location:
    """All that a thing can be recognised by.

    `path` has no links; `identity` is None for what does not exist or hides from us. `above` are
    the directories it lies in, `places` its own, `inner` what is mounted on or below it.
    """

    path: str
    identity: Identity | None
    above: frozenset[Identity]
    places: frozenset[Place]
    inner: frozenset[Place]

    def relation(self, other: Location) -> Literal["is", "is inside", "contains"] | None:
        """What this is to `other`, whatever names and mounts both are reached by."""
        if self.identity is not None and self.identity == other.identity:
            return "is"
        theirs = other.places | other.inner
        if other.identity in self.above or _hold(theirs, self.places):
            return "is" if self.places & other.places else "is inside"
        if self.identity in other.above or _hold(self.places | self.inner, theirs):
            return "contains"
        return "contains" if _hold(theirs, self.inner) else None


def _hold(outer: Iterable[Place], inner: Iterable[Place]) -> bool:
    return any(each.holds(place) for each in outer for place in inner)


def is_within(path: str, directory: str) -> bool:
    """Whether an absolute path is `directory` or below it, by its text alone."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def identity_of(facts: os.stat_result) -> Identity:
    """The identity in what stat(2) tells."""
    return Identity(facts.st_dev, facts.st_ino)


def mount_id(fd: int) -> int:
    """The mount that an open file was reached through. Raises OSError, ParseError."""
    with open(f"/proc/self/fdinfo/{fd}", "rb") as file:
        return procfs.parse_fdinfo(file.read()).mount_id


def read_mounts() -> tuple[MountEntry, ...]:
    """The mounts of this process. Raises OSError, ParseError."""
    with open("/proc/self/mountinfo", "rb") as file:
        return procfs.parse_mountinfo(file.read())


def place_in(mount: MountEntry, path: str) -> Place:
    """The place of an absolute `path` at or below the mount's target."""
    below = os.path.relpath(path, mount.target)
    return Place(mount.device, os.path.normpath(os.path.join(mount.root, below)))


def mounted_in(path: str, mounts: Iterable[MountEntry]) -> tuple[MountEntry, ...]:
    """The mounts on an absolute `path` or below it."""
    return tuple(each for each in mounts if is_within(each.target, path))


def inner_places(mounts: Iterable[MountEntry]) -> frozenset[Place]:
    """What these mounts show."""
    return frozenset(Place(each.device, each.root) for each in mounts)


def locate(path: str, mounts: tuple[MountEntry, ...]) -> tuple[Location, ...]:
    """Where an absolute `path` leads, whether or not anything is there; and the link, if it is one.

    What each mount on the way hides counts as well: another mount may show it. Raises nothing.
    """
    parent, name = os.path.split(path)
    names = dict.fromkeys([os.path.realpath(path), os.path.join(os.path.realpath(parent), name)])
    return tuple(_location(each, mounts) for each in names)


def _location(path: str, mounts: tuple[MountEntry, ...]) -> Location:
    above = (_identity_at(path[:end] or "/") for end, letter in enumerate(path) if letter == "/")
    return Location(
        path,
        _identity_at(path),
        frozenset(each for each in above if each is not None and path != "/"),
        frozenset(place_in(each, path) for each in mounts if is_within(path, each.target)),
        inner_places(mounted_in(path, mounts)),
    )


def _identity_at(path: str) -> Identity | None:
    with contextlib.suppress(OSError):
        return identity_of(os.lstat(path))
    return None
