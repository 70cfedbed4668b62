"""What a `base` names, and what tells that its contents have changed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from reconciler.errors import Missing, Refused
from reconciler.images import busybox, podman

_BUSYBOX = "builtin:busybox"
_ARCHIVE = "oci-archive:"
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,511}")


class Kind(Enum):
    """Where a base comes from."""

    BUSYBOX = "busybox"
    ARCHIVE = "archive"
    PODMAN = "podman"


@dataclass(frozen=True)
class BaseRef:
    """A Boxfile's `base`, parsed: `location` is a path or a reference, "" for busybox."""

    text: str
    kind: Kind
    location: str


def resolve_base(base: str) -> BaseRef:
    """Parse a base: builtin:busybox, oci-archive:/PATH or a reference in podman's storage.

    Looks at nothing outside. Raises Refused when it is none of them.
    """
    if base == _BUSYBOX:
        return BaseRef(base, Kind.BUSYBOX, "")
    if base.startswith("builtin:"):
        raise Refused(f"there is no base {base!r}", hint=f"the builtin base is {_BUSYBOX}")
    if base.startswith(_ARCHIVE):
        path = base.removeprefix(_ARCHIVE)
        if not path.startswith("/") or "\0" in path:
            raise Refused(f"{base!r} does not name an absolute path", hint=f"{_ARCHIVE}/PATH")
        return BaseRef(base, Kind.ARCHIVE, path)
    if not _REFERENCE.fullmatch(base):
        raise Refused(f"{base!r} is not an image reference")
    return BaseRef(base, Kind.PODMAN, base)


def identity(reference: BaseRef) -> str:
    """Return what changes with the base's contents: a file's stat, or an image's ID.

    Raises Missing when it is not there, and CommandFailed.
    """
    match reference.kind:
        case Kind.BUSYBOX:
            return _file_identity(busybox.find_busybox())
        case Kind.ARCHIVE:
            return _file_identity(Path(reference.location))
        case Kind.PODMAN:
            return podman.image_id(reference.location)


def _file_identity(path: Path) -> str:
    try:
        facts = path.stat()
    except OSError as error:
        raise Missing(f"{path}: {error.strerror}", hint="look at `base` in the Boxfile") from error
    return f"{path} {facts.st_dev}:{facts.st_ino}:{facts.st_size}:{facts.st_mtime_ns}"
