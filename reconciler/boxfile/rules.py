"""Rules over more than one field of a Boxfile; each is checked where its own fields are good."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.packages import manager_of, package_fault
from reconciler.boxfile.problems import shown
from reconciler.boxfile.support import lacks
from reconciler.boxfile.tree import Path


@dataclass(frozen=True, slots=True)
class Fault:
    """A rule that is broken at `path`; `first` is where the thing that came twice came first."""

    path: Path
    message: str
    first: Path | None = None


def broken_rules(boxfile: Boxfile, unknown: frozenset[str | int]) -> Iterator[Fault]:
    """Each rule the Boxfile breaks; nothing is said about `unknown` fields."""
    for needed, rule in _RULES:
        if not needed & unknown:
            yield from rule(boxfile)
    if "backend" not in unknown:
        yield from (Fault(*each) for each in lacks(boxfile) if each[0][0] not in unknown)


def _writable_mounts(boxfile: Boxfile) -> Iterator[Fault]:
    if boxfile.isolation != "strict":
        return
    for index, mount in enumerate(boxfile.mounts):
        if mount.mode == "rw":
            yield Fault(
                ("mounts", index, "mode"),
                "isolation strict allows ro only, since the VMM's UID owns nothing of yours; "
                "exchange files through /data",
            )


def _mounted_twice(boxfile: Boxfile) -> Iterator[Fault]:
    guests = [mount.guest for mount in boxfile.mounts]
    return _repeated(guests, ("mounts",), "guest", "is mounted twice")


def _hidden_mounts(boxfile: Boxfile) -> Iterator[Fault]:
    """Mounts are made in the order of the text: one over a folder hides what was mounted in it."""
    guests = [mount.guest for mount in boxfile.mounts]
    for first, inner in enumerate(guests):
        for index in range(first + 1, len(guests)):
            if inner.startswith(f"{guests[index]}/"):
                path: Path = ("mounts", index, "guest")
                message = f"would hide the mount at {inner}; give the outer one first"
                yield Fault(path, message, ("mounts", first, "guest"))


def _files_as_folders(boxfile: Boxfile) -> Iterator[Fault]:
    paths = [file.path for file in boxfile.blueprint.write_files]
    at = {path: index for index, path in enumerate(paths)}
    for index, path in enumerate(paths):
        for end in [place for place, sign in enumerate(path) if sign == "/"][1:]:
            if (first := at.get(path[:end])) is not None:
                where: Path = ("blueprint", "write_files")
                message = f"lies in {path[:end]}, which is written as a file"
                yield Fault((*where, index, "path"), message, (*where, first, "path"))


def _made_twice(boxfile: Boxfile) -> Iterator[Fault]:
    blueprint = boxfile.blueprint
    names = [user.name for user in blueprint.users]
    yield from _repeated(names, ("blueprint", "users"), "name", "is made twice")
    paths = [file.path for file in blueprint.write_files]
    yield from _repeated(paths, ("blueprint", "write_files"), "path", "is written twice")


def _package_names(boxfile: Boxfile) -> Iterator[Fault]:
    if not boxfile.packages:
        return
    manager = boxfile.pkgmgr or manager_of(boxfile.base)
    if boxfile.base.startswith("builtin:"):
        message = f"{boxfile.base} has no package manager; use another base"
        yield Fault(("packages",), message)
    elif manager is None:
        message = "the base does not tell its package manager; add pkgmgr: apk, apt or dnf"
        yield Fault(("packages",), message)
    else:
        for index, name in enumerate(boxfile.packages):
            if fault := package_fault(name, manager):
                yield Fault(("packages", index), f"{shown(name)} {fault}")


def _repeated(values: Sequence[str], path: Path, key: str, message: str) -> Iterator[Fault]:
    """A fault for each value that came before; they stand at `path`[index].`key`."""
    seen: dict[str, int] = {}
    for index, value in enumerate(values):
        first = seen.setdefault(value, index)
        if first != index:
            yield Fault((*path, index, key), message, (*path, first, key))


_RULES: tuple[tuple[frozenset[str], Callable[[Boxfile], Iterator[Fault]]], ...] = (
    (frozenset({"isolation", "mounts"}), _writable_mounts),
    (frozenset({"mounts"}), _mounted_twice),
    (frozenset({"mounts"}), _hidden_mounts),
    (frozenset({"blueprint"}), _made_twice),
    (frozenset({"blueprint"}), _files_as_folders),
    (frozenset({"base", "packages", "pkgmgr"}), _package_names),
)
