"""Built root images by digest, and which base was built into which (images/refs.json)."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.images.config import ImageConfig
from reconciler.linux.files import BrokenFile, locked, read_json, sync_directory, write_json

if TYPE_CHECKING:
    from reconciler.images.filesystem import FilesystemImage

_MODE = 0o444  # mounted into jails, where another user ID reads it; the directory above is 0700


@dataclass(frozen=True)
class Image:
    """A root image on disk. The digest covers its bytes and its config."""

    digest: str
    path: Path
    fstype: str
    config: ImageConfig
    size_bytes: int


def find_image(home: Path, base: str, identity: str | None) -> Image | None:
    """Return the image built from `base`, for a few stats, or None.

    `identity` tells the source's contents; None means that any build of this base will do.
    """
    try:
        known = _references(home)[base]
        if identity not in (None, known["identity"]):
            return None
        directory = home / "images" / known["digest"]
        facts = read_json(directory / "meta.json")
        path = directory / facts["file"]
        config = ImageConfig.from_json(facts["config"])
        return Image(known["digest"], path, facts["fstype"], config, path.stat().st_size)
    except (FileNotFoundError, BrokenFile, KeyError, TypeError):
        # Not there, or not what we write: it is made anew.
        return None


def keep_image(made: FilesystemImage, config: ImageConfig, home: Path) -> str:
    """Move a finished image below `home` and return its digest; the same image twice is one.

    `made` lies alone in a directory on the same filesystem, which becomes the image's.
    """
    made.path.chmod(_MODE)
    with made.path.open("rb") as stream:
        contents = hashlib.file_digest(stream, "sha256").hexdigest()
        os.fsync(stream.fileno())
    facts = {"config": config.as_json(), "contents": contents, "fstype": made.fstype}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    write_json(made.path.parent / "meta.json", {**facts, "file": made.path.name})
    images = home / "images"
    images.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        made.path.parent.rename(images / digest)
    except OSError as error:
        # It is there already: the name tells the contents, if nobody has torn what tells of them.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        write_json(images / digest / "meta.json", {**facts, "file": made.path.name})
    sync_directory(images)
    return digest


def remember(home: Path, base: str, identity: str, digest: str) -> None:
    """Record that `base`, with these contents, was built into `digest`."""
    path = home / "images" / "refs.json"
    with locked(path.with_suffix(".lock")):
        references = _references(home)
        references[base] = {"digest": digest, "identity": identity}
        write_json(path, references)


def _references(home: Path) -> dict[str, Any]:
    try:
        return read_json(home / "images" / "refs.json")
    except (FileNotFoundError, BrokenFile):
        return {}  # an index only: what it would name is built again, into the same digest
