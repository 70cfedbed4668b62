from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import BinaryIO

import pytest

from reconciler.images import busybox, flat
from reconciler.images.config import ImageConfig
from reconciler.images.layers import merge
from reconciler.images.oci import open_archive
from tests.images.archives import file, layer, symlink

CONFIG = ImageConfig(('A=b "$c"\\', "B="), "/srv/a b", "7:8")
LAYER = layer(file(b"etc/motd", b"hello", 0o640, 5, 6), symlink(b"link", b"etc/motd"))


def write(directory: Path, data: bytes = LAYER, config: ImageConfig = CONFIG) -> tuple[str, Path]:
    directory.mkdir()
    path = directory / "image.tar"

    def write_layer(stream: BinaryIO) -> None:
        stream.write(data)

    identifier = flat.write_archive(write_layer, config, path)
    assert list(directory.iterdir()) == [path]
    return identifier, path


def blob(path: Path, name: str) -> bytes:
    with tarfile.open(path) as archive:
        member = archive.extractfile(name)
        assert member is not None
        return member.read()


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    _, path = write(tmp_path / "a")
    with open_archive(path) as archive:
        assert archive.config == CONFIG
        assert len(archive.layers) == 1
        merged = merge(archive.layers)
    assert {b"etc", b"link"} <= set(merged.root.children or {})
    digest = hashlib.sha256(LAYER).hexdigest()
    assert blob(path, f"blobs/sha256/{digest}") == LAYER


def test_the_id_is_that_of_the_configuration_which_names_the_layer(tmp_path: Path) -> None:
    identifier, path = write(tmp_path / "a")
    config = blob(path, f"blobs/sha256/{identifier}")
    assert hashlib.sha256(config).hexdigest() == identifier
    digest = hashlib.sha256(LAYER).hexdigest()
    assert json.loads(config)["rootfs"]["diff_ids"] == [f"sha256:{digest}"]
    assert write(tmp_path / "b")[0] == identifier
    assert write(tmp_path / "c", layer(file(b"a")))[0] != identifier
    assert write(tmp_path / "d", config=ImageConfig())[0] != identifier


def test_no_name_is_in_the_archive(tmp_path: Path) -> None:
    index = json.loads(blob(write(tmp_path / "a")[1], "index.json"))
    assert all("annotations" not in one for one in (index, *index["manifests"]))


def test_what_the_layer_raises_is_raised(tmp_path: Path) -> None:
    def broken(_stream: object) -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        flat.write_archive(broken, CONFIG, tmp_path / "image.tar")
    assert not (tmp_path / "image.tar").exists()


def test_a_tree_is_roots_and_has_no_times(tmp_path: Path) -> None:
    busybox.make_tree(busybox.find_busybox(), tmp_path / "tree")
    (tmp_path / "tree/bin/busybox").chmod(0o755)
    with (tmp_path / "tree.tar").open("xb") as stream:
        flat.write_tree(tmp_path / "tree", stream)
    with tarfile.open(tmp_path / "tree.tar") as archive:
        members = archive.getmembers()
    assert {(one.uid, one.gid, one.mtime, one.uname) for one in members} == {(0, 0, 0, "")}
    modes = {one.name.removeprefix("./"): one.mode for one in members}
    assert (modes["tmp"], modes["root"], modes["bin/busybox"]) == (0o1777, 0o700, 0o755)
