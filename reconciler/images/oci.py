"""Reading an OCI image layout out of a tar file (image-spec: image-layout.md, manifest.md)."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.errors import Missing
from reconciler.images.blob import Blob, Layer
from reconciler.images.config import ImageConfig, parse_oci_config
from reconciler.images.tar import BadArchive, Header, Kind, components, members, skip_data

_JSON_LIMIT_BYTES = 4 << 20
_MEMBERS_LIMIT = 20_000
_LAYERS_LIMIT = 1000
_NESTING_LIMIT = 4
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class OciImage:
    """The one image of an archive: layers from the lowest up."""

    config: ImageConfig
    layers: tuple[Layer, ...]


@contextlib.contextmanager
def open_archive(path: Path) -> Iterator[OciImage]:
    """Open the OCI archive `path`; its layers can be read within the block.

    Raises Missing when there is no such file, BadArchive for anything but one image, for this
    machine, whose metadata has the digests it is named by.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise Missing(f"{path}: {error.strerror}") from error
    try:
        yield _read_image(_Blobs(fd))
    finally:
        os.close(fd)


class _File:
    """The archive itself as a tar `Source`."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.position = 0

    def read(self, size: int) -> bytes:
        data = os.pread(self._fd, size, self.position)
        self.position += len(data)
        return data

    def skip(self, size: int) -> None:
        self.position += size


class _Blobs:
    """Where the files of the layout lie in the archive."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._places: dict[bytes, tuple[int, int]] = {}
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            raise BadArchive("it is not a regular file")
        source = _File(fd)
        for count, header in enumerate(members(source)):
            if count >= _MEMBERS_LIMIT:
                raise BadArchive("the archive has too many members")
            self._add(header, source.position)
            skip_data(source, header)
            if source.position > facts.st_size:
                raise BadArchive("the archive is cut short")

    def index(self) -> dict[str, Any]:
        """Return index.json, which is what makes the archive an image."""
        if b"index.json" not in self._places:
            raise BadArchive("the archive is no OCI image: it has no index.json")
        offset, size = self._places[b"index.json"]
        return self._json("index.json", offset, size)

    def json(self, descriptor: object) -> dict[str, Any]:
        """Return the JSON object that a descriptor names, its digest verified."""
        layer = self.layer(descriptor)
        value = self._json(layer.sha256, layer.offset, layer.size)
        stream = Blob(layer)
        stream.finish()
        return value

    def layer(self, descriptor: object) -> Layer:
        """Return where the blob lies that a descriptor names; it is not read here."""
        if not isinstance(descriptor, dict):
            raise BadArchive("a descriptor in the image is not an object")
        match = _DIGEST.fullmatch(str(descriptor.get("digest")))
        if match is None:
            raise BadArchive("a digest in the image is not SHA-256")
        place = self._places.get(b"blobs/sha256/" + match[1].encode())
        if place is None:
            raise BadArchive("a blob of the image is missing", details=match[0])
        if descriptor.get("size", place[1]) != place[1]:
            raise BadArchive("a blob of the image does not have its size", details=match[0])
        return Layer(self._fd, *place, match[1])

    def _add(self, header: Header, position: int) -> None:
        name = b"/".join(components(header.name))
        if header.kind is Kind.FILE:
            if name in self._places:
                raise BadArchive("the archive holds a file twice", details=ascii(name))
            self._places[name] = (position, header.size)
        elif header.kind is not Kind.DIRECTORY:
            raise BadArchive("the archive holds a link or a device", details=ascii(name))

    def _json(self, name: str, offset: int, size: int) -> dict[str, Any]:
        if size > _JSON_LIMIT_BYTES:
            raise BadArchive("the image's metadata is too large", details=name)
        try:
            value = json.loads(os.pread(self._fd, size, offset))
        except (ValueError, RecursionError) as error:
            raise BadArchive("the image's metadata is not JSON", details=name) from error
        if not isinstance(value, dict):
            raise BadArchive("the image's metadata is not an object", details=name)
        return value


def _read_image(blobs: _Blobs) -> OciImage:
    manifest = _manifest(blobs, blobs.index(), 0)
    layers = manifest.get("layers")
    if not isinstance(layers, list) or len(layers) > _LAYERS_LIMIT:
        raise BadArchive("the image has no list of layers, or too many")
    image = blobs.json(manifest.get("config"))
    return OciImage(
        config=parse_oci_config(image.get("config")),
        layers=tuple(blobs.layer(layer) for layer in layers),
    )


def _manifest(blobs: _Blobs, index: dict[str, Any], depth: int) -> dict[str, Any]:
    """Return the one manifest for this machine; an index may lead to another index."""
    found = index.get("manifests")
    if not isinstance(found, list) or depth > _NESTING_LIMIT:
        raise BadArchive("the image's index has no list of manifests, or goes too deep")
    fitting = [entry for entry in found if _fits(entry)]
    if len(fitting) != 1:
        raise BadArchive(
            f"the archive holds {len(fitting)} images for this machine, not one",
            hint="save one image, for one architecture",
        )
    value = blobs.json(fitting[0])
    return _manifest(blobs, value, depth + 1) if "manifests" in value else value


def _fits(descriptor: object) -> bool:
    platform = descriptor.get("platform") if isinstance(descriptor, dict) else None
    if not isinstance(platform, dict):
        return True
    machine = os.uname().machine
    return platform.get("architecture") == _ARCHITECTURES.get(machine, machine)
