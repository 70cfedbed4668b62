"""Which backend can do what: a field that the chosen one cannot do is refused, never ignored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.boxfile.model import Boxfile
    from reconciler.boxfile.tree import Path

AVAILABLE = frozenset({"qemu"})
"""The backends that this version of box has. A Boxfile for another one is good, but not here."""


@dataclass(frozen=True, slots=True)
class Lack:
    """What a backend cannot do: `asking` are the values of `field` that ask for it."""

    field: str
    message: str
    asking: tuple[object, ...] = ()

    def asked_for(self, boxfile: Boxfile) -> bool:
        """Whether this Boxfile wants it."""
        value = getattr(boxfile, self.field)
        return value in self.asking if self.asking else bool(value)


_NO_SHARES = "exchange files through /data instead"
LACKS = {
    "qemu": (
        Lack("network", "qemu has no bridge yet; write `network: none`", ("bridge",)),
        Lack("passt", "is for the backends krun and podman; remove it"),
        Lack("mounts", f"qemu shares no folders of the host yet; {_NO_SHARES}"),
        Lack("seccomp", "qemu runs under box's own profile only; remove it"),
    ),
    "firecracker": (
        Lack("passt", "is for the backends krun and podman; remove it"),
        Lack("mounts", f"firecracker shares no folders of the host; {_NO_SHARES}"),
        Lack("seccomp", "firecracker runs under box's own profile only; remove it"),
    ),
    "krun": (),
    "podman": (),
}


def lacks(boxfile: Boxfile) -> Iterator[tuple[Path, str]]:
    """Each field that the Boxfile's backend cannot do, with what to say to it."""
    for lack in LACKS[boxfile.backend]:
        if lack.asked_for(boxfile):
            said = lack.field in boxfile.model_fields_set
            default = "" if said else f"is {getattr(boxfile, lack.field)} when left out, and "
            yield (lack.field,), default + lack.message


def absence(boxfile: Boxfile) -> str | None:
    """Say that this version does not have the Boxfile's backend; None when it does."""
    if boxfile.backend in AVAILABLE:
        return None
    have = ", ".join(sorted(AVAILABLE))
    return f"this version of box does not have {boxfile.backend} yet; it has {have}"
