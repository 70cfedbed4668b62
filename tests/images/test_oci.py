from __future__ import annotations

import gzip
import importlib.util
import io
import os
import tarfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import Missing
from reconciler.images.config import ImageConfig
from reconciler.images.layers import merge
from reconciler.images.oci import OciImage, open_archive
from reconciler.images.tar import BadArchive
from reconciler.linux.process import run
from tests.images.archives import (
    ARCHITECTURE,
    Layout,
    file,
    image_archive,
    layer,
    layout,
    pack_file,
)

LAYER = layer(file(b"a", b"data"))


def read(path: Path) -> OciImage:
    """Read an archive to its last byte."""
    with open_archive(path) as image:
        merge(image.layers).write(io.BytesIO())
        return image


def test_an_image_is_its_config_and_its_layers(tmp_path: Path) -> None:
    path = image_archive(tmp_path / "x.tar", LAYER, LAYER, config={"Env": ["A=1"]})
    image = read(path)
    assert image.config == ImageConfig(("A=1",), "/", "")
    assert len(image.layers) == 2


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_layers_are_known_by_their_bytes(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    assert len(read(layout([compress(LAYER)]).pack(tmp_path / "x.tar")).layers) == 1


def test_zstd_layers_work_where_the_package_is_and_say_so_where_not(tmp_path: Path) -> None:
    data = layer(file(b"a", os.urandom(300_000)))
    compressed = run(["zstd", "-c"], stdin=data, timeout_seconds=30).stdout
    path = layout([compressed]).pack(tmp_path / "x.tar")
    if importlib.util.find_spec("zstandard") is None:
        with pytest.raises(Missing, match="zstandard"):
            read(path)
    else:
        read(path)
        path = layout([compressed[:200_000]]).pack(tmp_path / "cut.tar")
        with pytest.raises(BadArchive):
            read(path)


def nested(made: Layout) -> None:
    made.index = {"manifests": [made.add_json(made.index)]}


def deeper_and_deeper(made: Layout) -> None:
    for _ in range(10):
        nested(made)


def other_machine_beside(made: Layout) -> None:
    mine = {**made.index["manifests"][0], "platform": {"architecture": ARCHITECTURE}}
    other = {**made.add_json({"layers": []}), "platform": {"architecture": "s390x"}}
    made.index = {"manifests": [other, mine]}


@pytest.mark.parametrize("change", [nested, other_machine_beside])
def test_an_index_leads_to_the_one_image_for_this_machine(
    tmp_path: Path, change: Callable[[Layout], None]
) -> None:
    made = layout([LAYER])
    change(made)
    assert len(read(made.pack(tmp_path / "x.tar")).layers) == 1


def two_images(made: Layout) -> None:
    made.index["manifests"] *= 2


def no_image(made: Layout) -> None:
    made.index["manifests"] = []


def no_list(made: Layout) -> None:
    made.index = {}


def wrong_types(made: Layout) -> None:
    made.index["manifests"] = ["text"]


def other_digest(made: Layout) -> None:
    made.index["manifests"][0]["digest"] = "sha512:" + "0" * 128


def climbing_digest(made: Layout) -> None:
    made.index["manifests"][0]["digest"] = "sha256:../../index.json"


def missing_blob(made: Layout) -> None:
    made.index["manifests"][0]["digest"] = "sha256:" + "0" * 64


def wrong_size(made: Layout) -> None:
    made.index["manifests"][0]["size"] += 1


def change_blob(made: Layout, at: int) -> None:
    digest = list(made.blobs)[at]
    data = bytearray(made.blobs[digest])
    data[len(data) // 2] ^= 1
    made.blobs[digest] = bytes(data)


def changed_config(made: Layout) -> None:
    change_blob(made, 0)


def changed_layer(made: Layout) -> None:
    change_blob(made, 1)


def changed_manifest(made: Layout) -> None:
    change_blob(made, -1)


def manifest(made: Layout, value: object) -> None:
    made.index["manifests"] = [made.add_json(value)]


def no_layers(made: Layout) -> None:
    manifest(made, {"config": made.add_json({})})


def thousands_of_layers(made: Layout) -> None:
    manifest(made, {"config": made.add_json({}), "layers": [made.add(b"")] * 5000})


def no_config(made: Layout) -> None:
    manifest(made, {"layers": []})


def list_for_manifest(made: Layout) -> None:
    manifest(made, [])


def deep_json(made: Layout) -> None:
    made.index["manifests"] = [made.add(b"[" * 100_000)]


def huge_json(made: Layout) -> None:
    made.index["manifests"] = [made.add(b'{"a":"' + b"x" * (5 << 20) + b'"}')]


def huge_number(made: Layout) -> None:
    made.index["manifests"] = [made.add(b'{"a":' + b"9" * 100_000 + b"}")]


HOSTILE = [
    two_images,
    no_image,
    no_list,
    wrong_types,
    other_digest,
    climbing_digest,
    missing_blob,
    wrong_size,
    changed_config,
    changed_layer,
    changed_manifest,
    no_layers,
    thousands_of_layers,
    no_config,
    list_for_manifest,
    deep_json,
    huge_json,
    huge_number,
    deeper_and_deeper,
]


@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: change.__name__)
def test_an_archive_that_contradicts_itself_is_refused(
    tmp_path: Path, change: Callable[[Layout], None]
) -> None:
    made = layout([LAYER])
    change(made)
    with pytest.raises(BadArchive):
        read(made.pack(tmp_path / "x.tar"))


def test_what_is_not_there_or_not_a_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="No such file"):
        read(tmp_path / "absent.tar")
    with pytest.raises(BadArchive, match="regular file"):
        read(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(BadArchive, match="regular file"):
        read(tmp_path / "fifo")


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 10240, b"not a tar\n" * 200, gzip.compress(LAYER)],
    # The time is in what gzip makes, and a name of a test is the same wherever it is collected.
    ids=["empty", "zeros", "text", "gzip"],
)
def test_what_is_no_oci_archive_is_told(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(data)
    with pytest.raises(BadArchive, match=r"tar archive|index\.json|cut short"):
        read(tmp_path / "x.tar")


def outer(path: Path, *extra: tarfile.TarInfo) -> Path:
    made = layout([LAYER])
    made.pack(path)
    with tarfile.open(path, "a") as archive:
        for member in extra:
            archive.addfile(member)
    return path


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, b"S"])
def test_the_archive_itself_holds_files_only(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("blobs/sha256/extra")
    member.type, member.linkname = kind, "/etc/shadow"
    with pytest.raises(BadArchive):
        read(outer(tmp_path / "x.tar", member))


@pytest.mark.parametrize("name", ["/index.json", "../index.json", "./index.json"])
def test_the_archives_own_names_are_checked_too(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadArchive):
        read(outer(tmp_path / "x.tar", tarfile.TarInfo(name)))


def test_an_archive_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = image_archive(tmp_path / "x.tar", LAYER)
    data = path.read_bytes()
    end = len(data.rstrip(b"\0"))
    for length in range(0, end, 512):
        path.write_bytes(data[:length])
        with pytest.raises(BadArchive):
            read(path)


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_compressed_layer_that_is_cut_short_is_refused(tmp_path: Path, cut: int) -> None:
    compressed = gzip.compress(layer(file(b"a", os.urandom(5000))))
    with pytest.raises(BadArchive):
        read(layout([compressed[:-cut]]).pack(tmp_path / "x.tar"))


def test_a_layer_with_garbage_behind_it_is_refused(tmp_path: Path) -> None:
    data = gzip.compress(layer(file(b"a", b"x" * 5000)).rstrip(b"\0")) + b"garbage"
    with pytest.raises(BadArchive, match=r"broken|cut short"):
        read(layout([data]).pack(tmp_path / "x.tar"))


def bomb(unpacked_bytes: int) -> bytes:
    """Return gzip of a tar with one file of zeros, made of one compressed piece over and over."""
    piece = gzip.compress(bytes(16 << 20))
    head = layer(
        (file(b"zeros")[0].__class__(b"zeros", file(b"")[0].kind, size=unpacked_bytes), b"")
    )
    return gzip.compress(head[:512]) + piece * (unpacked_bytes // (16 << 20))


@pytest.mark.slow
def test_a_compression_bomb_costs_little_time_and_no_memory(tmp_path: Path) -> None:
    path = layout([bomb(6 << 30)]).pack(tmp_path / "x.tar")
    assert path.stat().st_size < 10 << 20
    tracemalloc.start()
    begin = time.monotonic()
    try:
        with pytest.raises(BadArchive, match="beyond every measure"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert time.monotonic() - begin < 60


def test_a_file_of_many_zeros_is_no_bomb(tmp_path: Path) -> None:
    read(layout([gzip.compress(layer(file(b"z", bytes(50 << 20))))]).pack(tmp_path / "x"))


def test_a_flood_of_members_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for number in range(20_001):
            pack_file(archive, f"f{number}", b"")
    with pytest.raises(BadArchive, match="too many"):
        read(tmp_path / "x.tar")


def test_json_types_never_reach_the_caller(tmp_path: Path) -> None:
    odd: list[Any] = [None, 1, "x", [], {}, [None], {"digest": None}, {"digest": 1}]
    for value in odd:
        for field in ("config", "layers", "manifests"):
            made = layout([LAYER])
            made.index["manifests"] = [made.add_json({"config": {}, "layers": [], field: value})]
            with pytest.raises(BadArchive):
                read(made.pack(tmp_path / "x.tar"))
