"""A sandbox as declared, in plain values: what a pass needs of a Boxfile.

Kept as JSON with the sandbox, so that a command on a running one reads no YAML.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, cast

from reconciler.boxfile.recipe import Blueprint, NewFile, NewUser, PackageManager, Recipe

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.boxfile.model import Boxfile
    from reconciler.confinement.policy import Isolation

_ARCHIVE = "oci-archive:"
_NO_BLUEPRINT = Blueprint()


@dataclass(frozen=True, slots=True)
class HostMount:
    """A folder or file of the host for the guest; `host` is absolute, with links as they are."""

    host: str
    guest: str
    mode: str = "ro"
    follow_symlink: bool = False
    risky: bool = False


@dataclass(frozen=True)
class Spec:
    """The fields of a Boxfile under their names, with the sandbox's; paths are absolute.

    `env` is in the file's order. What its record does not say has the default.
    """

    name: str
    base: str
    backend: str
    isolation: Isolation
    cpus: int
    ram_mib: int
    network: str
    readonly: bool
    timeout_seconds: int
    env: tuple[tuple[str, str], ...]
    data_size: str | None
    state: str
    on_drift: str
    protect: bool
    passt: bool = False
    warm: int = 0
    warmup: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    mounts: tuple[HostMount, ...] = ()
    blueprint: Blueprint = _NO_BLUEPRINT
    pkgmgr: PackageManager | None = None
    seccomp: str | None = None

    @property
    def data_bytes(self) -> int:
        """The size of /data."""
        from reconciler.boxfile.changes import data_bytes

        return data_bytes(self.data_size)

    @property
    def recipe(self) -> Recipe:
        """What its root image is built from."""
        from reconciler.boxfile.packages import manager_of

        manager = (self.pkgmgr or manager_of(self.base)) if self.packages else None
        return Recipe(
            base=self.base,
            pkgmgr=manager,
            packages=self.packages,
            users=self.blueprint.users,
            files=self.blueprint.write_files,
            run=self.run,
            runcmd=self.blueprint.runcmd,
        )

    @property
    def digest(self) -> str:
        """Of everything: the generation that conditions are about."""
        return _digest(asdict(self))

    @property
    def vm_digest(self) -> str:
        """Of what a running VM cannot be given: another one means another VM."""
        from reconciler.boxfile.changes import NEW_VM

        value = asdict(self)
        return _digest({name: value[name] for name in NEW_VM} | {"data_size": self.data_bytes})

    def to_json(self) -> dict[str, Any]:
        """The JSON object that `from_json` takes."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Spec:
        """The spec in a record of ours; ValueError when it is none."""
        known = {field.name: field for field in fields(cls)}
        needed = {name for name, field in known.items() if field.default is MISSING}
        if odd := (value.keys() - known.keys()) | (needed - value.keys()):
            raise ValueError(f"not a spec of this version: {', '.join(sorted(odd))}")
        try:
            return cls(**{name: _READ.get(name, _text)(each) for name, each in value.items()})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a spec: {error}") from error


def spec_of(name: str, boxfile: Boxfile, folder: Path) -> Spec:
    """What the Boxfile of `name` declares; relative paths in it count from its `folder`."""
    value = boxfile.model_dump(exclude={"version"})
    value["env"] = list(value["env"].items())
    value["base"] = _absolute_base(value["base"], folder)
    for mount in value["mounts"]:
        mount["host"] = _in_home(mount["host"])
    if value["seccomp"] is not None:
        value["seccomp"] = _absolute(value["seccomp"], folder)
    return Spec.from_json({"name": name, **value})


def _in_home(path: str) -> str:
    """The path with ~ as the home it means; links on the way to a home are the user's own."""
    if not path.startswith("~"):
        return path
    return os.path.realpath(os.path.expanduser("~")) + path[1:].rstrip("/")  # noqa: PTH111


def _absolute_base(base: str, folder: Path) -> str:
    if not base.startswith(_ARCHIVE):
        return base
    return _ARCHIVE + _absolute(base.removeprefix(_ARCHIVE), folder)


def _absolute(path: str, folder: Path) -> str:
    # normpath, not resolve: a link is followed, or refused, each time the file is used.
    return os.path.normpath(folder / path)


def _text(value: object) -> str:
    return cast("str", _of(str)(value))


def _of(wanted: type) -> Callable[[object], object]:
    def read(value: object) -> object:
        if type(value) is not wanted:
            raise TypeError(f"{value!r} is no {wanted.__name__}")
        return value

    return read


def _optional_text(value: object) -> str | None:
    return None if value is None else _text(value)


def _texts(value: list[object]) -> tuple[str, ...]:
    return tuple(_text(each) for each in value)


def _blueprint(value: dict[str, Any]) -> Blueprint:
    return Blueprint(
        users=tuple(NewUser(**each) for each in value["users"]),
        write_files=tuple(NewFile(**each) for each in value["write_files"]),
        runcmd=_texts(value["runcmd"]),
    )


_READ: dict[str, Callable[[Any], Any]] = {
    "cpus": _of(int),
    "ram_mib": _of(int),
    "timeout_seconds": _of(int),
    "warm": _of(int),
    "readonly": _of(bool),
    "protect": _of(bool),
    "passt": _of(bool),
    "data_size": _optional_text,
    "pkgmgr": _optional_text,
    "seccomp": _optional_text,
    "warmup": _texts,
    "packages": _texts,
    "run": _texts,
    "env": lambda value: tuple((_text(name), _text(text)) for name, text in value),
    "mounts": lambda value: tuple(HostMount(**each) for each in value),
    "blueprint": _blueprint,
}
"""How a record's values are read; those of other fields are text."""


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
