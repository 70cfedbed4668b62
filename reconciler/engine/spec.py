"""A sandbox as declared, in plain values: what a pass needs of a Boxfile.

Kept as JSON with the sandbox, so that a command on a running one reads no YAML.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from reconciler.boxfile.model import Boxfile
    from reconciler.confinement.policy import Isolation

_ARCHIVE = "oci-archive:"
DEFAULT_DATA_BYTES = 8 << 30
_VM_FIELDS = (
    "base",
    "backend",
    "isolation",
    "cpus",
    "ram_mib",
    "network",
    "readonly",
    "data_bytes",
)

_TYPES: dict[str, type] = {
    "cpus": int,
    "ram_mib": int,
    "timeout_seconds": int,
    "data_bytes": int,
    "readonly": bool,
    "protect": bool,
}
"""Of the fields that are no text."""


@dataclass(frozen=True)
class Spec:
    """The fields of a Boxfile, with its name; sizes in bytes, `env` in the file's order."""

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
    data_bytes: int
    state: str
    on_drift: str
    protect: bool

    @property
    def digest(self) -> str:
        """Of everything: the generation that conditions are about."""
        return _digest(asdict(self))

    @property
    def vm_digest(self) -> str:
        """Of what a running VM cannot be given: another one means another VM."""
        return _digest({name: getattr(self, name) for name in _VM_FIELDS})

    def to_json(self) -> dict[str, Any]:
        """The JSON object that `from_json` takes."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Spec:
        """The spec in a record of ours; ValueError when it is none."""
        wanted = {field.name for field in fields(cls)}
        if odd := wanted.symmetric_difference(value):
            raise ValueError(f"not a spec of this version: {', '.join(sorted(odd))}")
        env = tuple((str(name), str(text)) for name, text in value["env"])
        for name in wanted - {"env"}:
            if type(value[name]) is not _TYPES.get(name, str):
                raise ValueError(f"not a spec: {name} is {value[name]!r}")
        return cls(**{**value, "env": env})


def spec_of(name: str, boxfile: Boxfile, folder: Path) -> Spec:
    """What the Boxfile of `name` declares; relative paths in it count from its `folder`."""
    return Spec(
        name=name,
        base=_absolute(boxfile.base, folder),
        backend=boxfile.backend,
        isolation=boxfile.isolation,
        cpus=boxfile.cpus,
        ram_mib=boxfile.ram_mib,
        network=boxfile.network,
        readonly=boxfile.readonly,
        timeout_seconds=boxfile.timeout_seconds,
        env=tuple(boxfile.env.items()),
        data_bytes=boxfile.data_size_bytes or DEFAULT_DATA_BYTES,
        state=boxfile.state,
        on_drift=boxfile.on_drift,
        protect=boxfile.protect,
    )


def _absolute(base: str, folder: Path) -> str:
    if not base.startswith(_ARCHIVE):
        return base
    # normpath, not resolve: a link is followed each time the archive is read.
    return _ARCHIVE + os.path.normpath(folder / base.removeprefix(_ARCHIVE))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
