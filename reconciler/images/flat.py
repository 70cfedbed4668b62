"""An OCI archive of one layer, written by us: a base on its way into podman's storage."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from reconciler.images.config import ImageConfig
from reconciler.images.tar import Header, Kind, padding
from reconciler.images.tarwriter import END, encode

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_TYPE = "application/vnd.oci.image"


def write_archive(write: Callable[[BinaryIO], None], config: ImageConfig, path: Path) -> str:
    """Write the archive `path`, a new file, and return the image's ID.

    `write` writes the layer, a tar stream. No name is in the archive (image-spec: annotations.md),
    and of the configuration only what ImageConfig has. Beside it a file `path`.layer comes and
    goes: a blob's name is its digest, which is known at its end.
    """
    layer = path.with_name(f"{path.name}.layer")
    with layer.open("x+b") as stream:
        write(stream)
        stream.seek(0)
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        size = stream.tell()
        stream.seek(0)
        with path.open("xb") as archive:
            identifier = _write_metadata(archive, config, (digest, size))
            archive.write(_header(f"blobs/sha256/{digest}", size))
            shutil.copyfileobj(stream, archive, 1 << 20)
            archive.write(b"\0" * padding(size) + END)
    layer.unlink()
    return identifier


def write_tree(tree: Path, stream: BinaryIO) -> None:
    """Write a directory of ours as a tar stream, all of it root's and without times."""
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(tree, ".", filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def _write_metadata(archive: BinaryIO, config: ImageConfig, layer: tuple[str, int]) -> str:
    digest, size = layer
    machine = os.uname().machine
    image = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Env": config.env, "User": config.user, "WorkingDir": config.working_dir},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "history": [{"created_by": "box"}],  # buildah counts entries against layers
    }
    described = _add(archive, "config.v1+json", image)
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": described,
        "layers": [_descriptor("layer.v1.tar", digest, size)],
    }
    index = {"schemaVersion": 2, "manifests": [_add(archive, "manifest.v1+json", manifest)]}
    _file(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    _file(archive, "index.json", json.dumps(index).encode())
    return str(described["digest"]).removeprefix("sha256:")


def _add(archive: BinaryIO, kind: str, value: object) -> dict[str, Any]:
    data = json.dumps(value, sort_keys=True).encode()
    digest = hashlib.sha256(data).hexdigest()
    _file(archive, f"blobs/sha256/{digest}", data)
    return _descriptor(kind, digest, len(data))


def _descriptor(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": f"{_TYPE}.{kind}", "digest": f"sha256:{digest}", "size": size}


def _file(archive: BinaryIO, name: str, data: bytes) -> None:
    archive.write(_header(name, len(data)) + data + b"\0" * padding(len(data)))


def _header(name: str, size: int) -> bytes:
    return encode(Header(name.encode(), Kind.FILE, size=size))
