"""Image archives made by hand: good ones, and ones that no honest tool would write."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.images.tar import Header, Kind, padding
from reconciler.images.tarwriter import END, encode

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
Member = tuple[Header, bytes]


def file(name: bytes, data: bytes = b"", mode: int = 0o644, uid: int = 0, gid: int = 0) -> Member:
    return Header(name, Kind.FILE, mode, uid, gid, size=len(data)), data


def folder(name: bytes, mode: int = 0o755, uid: int = 0, gid: int = 0) -> Member:
    return Header(name, Kind.DIRECTORY, mode, uid, gid), b""


def symlink(name: bytes, target: bytes) -> Member:
    return Header(name=name, kind=Kind.SYMLINK, mode=0o777, link=target), b""


def hard_link(name: bytes, target: bytes) -> Member:
    return Header(name=name, kind=Kind.HARD_LINK, link=target), b""


def special(name: bytes, kind: Kind) -> Member:
    return Header(name=name, kind=kind), b""


def layer(*members: Member) -> bytes:
    """Return a plain tar of `members`."""
    parts = []
    for header, data in members:
        parts += [encode(header), data, b"\0" * padding(len(data))]
    return b"".join([*parts, END])


def raw_member(name: bytes, flag: bytes, size_field: bytes = b"", data: bytes = b"") -> bytes:
    """Return a member with any type flag and any 12 bytes as its size, its checksum right."""
    block = bytearray(encode(Header(name=name, kind=Kind.FILE, size=len(data))))
    block[156:157] = flag
    if size_field:
        block[124:136] = size_field
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + data + b"\0" * padding(len(data))


@dataclass
class Layout:
    """An OCI image layout before it is packed; a test may change anything in it."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    index: dict[str, Any] = field(default_factory=dict)

    def add(self, data: bytes) -> dict[str, Any]:
        """Add a blob and return its descriptor."""
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return {"digest": f"sha256:{digest}", "mediaType": "any", "size": len(data)}

    def add_json(self, value: object) -> dict[str, Any]:
        return self.add(json.dumps(value).encode())

    def pack(self, path: Path) -> Path:
        """Write the layout as a tar file."""
        with tarfile.open(path, "w") as archive:
            pack_file(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
            pack_file(archive, "index.json", json.dumps(self.index).encode())
            for digest, data in self.blobs.items():
                pack_file(archive, f"blobs/sha256/{digest}", data)
        return path


def pack_file(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def layout(layers: Iterable[bytes], config: Mapping[str, Any] | None = None) -> Layout:
    """Return the layout of one image for this machine."""
    made = Layout()
    image = {"architecture": ARCHITECTURE, "os": "linux", "config": config}
    manifest = {
        "schemaVersion": 2,
        "config": made.add_json(image),
        "layers": [made.add(data) for data in layers],
    }
    made.index = {"schemaVersion": 2, "manifests": [made.add_json(manifest)]}
    return made


def image_archive(
    path: Path, *layers: bytes, config: Mapping[str, Any] | None = None, level: int = 1
) -> Path:
    """Write an OCI archive of gzip layers to `path`."""
    compressed = [gzip.compress(data, level, mtime=0) for data in layers]
    return layout(compressed, config).pack(path)
