"""From a Boxfile's `base` to a root image: what kind of base it is, and building it once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.errors import BoxError, Missing, Refused
from reconciler.images import busybox, podman
from reconciler.images.config import ImageConfig
from reconciler.images.progress import Progress
from reconciler.images.scratch import scratch
from reconciler.images.store import Image, find_image, keep_image, remember

if TYPE_CHECKING:
    from reconciler.images.filesystem import FilesystemImage

# What only a build needs is imported there: every `run` asks for the image that is built already.

_BUSYBOX = "builtin:busybox"
_ARCHIVE = "oci-archive:"
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,511}")
# Part of every identity: with a change to how images are laid out, bases are built again.
_LAYOUT = 1


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


def built_image(home: Path, base: str) -> Image | None:
    """Return the image that `base` was built into, if its source is still the same, else None.

    Stats only. An image of podman's stays what it was at the last build, so that starting a
    sandbox needs no podman.
    """
    reference = resolve_base(base)
    pinned = reference.kind is Kind.PODMAN
    return find_image(home, base, None if pinned else _identity(reference))


def build_image(home: Path, base: str, progress: Progress) -> Image:
    """Return the root image of `base`, building it unless it is there for the same source.

    Killed at any point, on a full disk too, it leaves nothing half-made. Raises Missing (no file,
    no podman, no such image, no program), Refused for a hostile archive, CommandFailed, OSError.
    """
    reference = resolve_base(base)
    identity = _identity(reference)
    image = find_image(home, base, identity)
    if image is not None:
        return image
    progress(f"building the root image of {base}")
    with scratch(home) as directory:
        output = directory / "image"
        output.mkdir(mode=0o700)
        made, config = _make(reference, directory, output, progress)
        remember(home, base, identity, keep_image(made, config, home))
    image = find_image(home, base, identity)
    if image is None:
        raise BoxError(f"the image of {base} was removed while it was built")
    return image


def _make(
    reference: BaseRef, directory: Path, output: Path, progress: Progress
) -> tuple[FilesystemImage, ImageConfig]:
    match reference.kind:
        case Kind.BUSYBOX:
            from reconciler.images.filesystem import make_from_tree

            tree = directory / "tree"
            busybox.make_tree(busybox.find_busybox(), tree)
            return make_from_tree(tree, output), ImageConfig()
        case Kind.ARCHIVE:
            return _from_archive(Path(reference.location), output, progress)
        case Kind.PODMAN:
            archive = directory / "saved.tar"
            podman.save(reference.location, archive)
            return _from_archive(archive, output, progress)


def _from_archive(
    path: Path, output: Path, progress: Progress
) -> tuple[FilesystemImage, ImageConfig]:
    from reconciler.images.filesystem import make_from_tar
    from reconciler.images.layers import merge
    from reconciler.images.oci import open_archive

    with open_archive(path) as archive:
        merged = merge(archive.layers)
        for note in merged.notes:
            progress(note)
        return make_from_tar(merged.write, merged.newest_mtime(), output), archive.config


def _identity(reference: BaseRef) -> str:
    match reference.kind:
        case Kind.BUSYBOX:
            parts = _file_identity(busybox.find_busybox())
        case Kind.ARCHIVE:
            parts = _file_identity(Path(reference.location))
        case Kind.PODMAN:
            parts = podman.image_id(reference.location)
    return f"{_LAYOUT} {parts}"


def _file_identity(path: Path) -> str:
    try:
        facts = path.stat()
    except OSError as error:
        raise Missing(f"{path}: {error.strerror}", hint="look at `base` in the Boxfile") from error
    return f"{path} {facts.st_dev}:{facts.st_ino}:{facts.st_size}:{facts.st_mtime_ns}"
