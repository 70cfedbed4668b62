from __future__ import annotations

import gzip
import lzma
import struct
from collections.abc import Callable

import pytest

from reconciler.images.bzimage import is_bzimage, release, vmlinux
from reconciler.images.compression import NotDecompressed, decompress
from reconciler.linux.process import run

KERNEL = b"\x7fELF" + bytes(range(256)) * 100 + b"\0Linux version 6.1.0-1-test (me) #1\0"


def bzimage(payload: bytes, setup_sectors: int = 1, version: bytes = b"6.1.0-1-test (me)") -> bytes:
    """Return an x86 boot image as boot.rst lays it out, with only the fields that count."""
    head = bytearray(512 * ((setup_sectors or 4) + 1))
    head[0x1F1] = setup_sectors
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", head, 0x206, 0x20F)
    struct.pack_into("<H", head, 0x20E, 0x100)
    head[0x300 : 0x300 + len(version)] = version
    struct.pack_into("<II", head, 0x248, 64, len(payload))
    return bytes(head) + b"\xcc" * 64 + payload + b"\xcc" * 100


def sized(data: bytes) -> bytes:
    return data + struct.pack("<I", len(KERNEL))


def lz4(data: bytes) -> bytes:
    return run(["lz4", "-l", "-c"], stdin=data, timeout_seconds=30).stdout


def zstd(data: bytes) -> bytes:
    return run(["zstd", "-c"], stdin=data, timeout_seconds=30).stdout


FORMATS = [gzip.compress, lzma.compress, lz4, zstd]
IDS = ["gzip", "xz", "lz4", "zstd"]


@pytest.mark.parametrize("compress", FORMATS, ids=IDS)
@pytest.mark.parametrize("setup_sectors", [0, 1, 39])
def test_the_kernel_comes_out(compress: Callable[[bytes], bytes], setup_sectors: int) -> None:
    payload = compress(KERNEL)
    image = bzimage(payload if compress is gzip.compress else sized(payload), setup_sectors)
    assert is_bzimage(image)
    assert vmlinux(image) == KERNEL


def test_what_is_no_boot_image_is_told_apart() -> None:
    assert not is_bzimage(KERNEL)
    assert not is_bzimage(b"")
    old = bytearray(bzimage(b""))
    struct.pack_into("<H", old, 0x206, 0x0207)
    assert not is_bzimage(bytes(old))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"unknown",
        gzip.compress(KERNEL)[:-500],
        lzma.compress(KERNEL)[:200],
        gzip.compress(b"x"),
    ],
    ids=["empty", "unknown", "cut gzip", "cut xz", "no ELF"],
)
def test_a_payload_that_is_no_kernel_is_told(payload: bytes) -> None:
    with pytest.raises(NotDecompressed):
        vmlinux(bzimage(payload))


def test_the_release_is_found_packed_and_unpacked() -> None:
    assert release(KERNEL) == "6.1.0-1-test"
    assert release(bzimage(b"")) == "6.1.0-1-test"
    assert release(b"nothing of the kind") is None


@pytest.mark.parametrize("compress", FORMATS, ids=IDS)
def test_whole_files_are_decompressed(compress: Callable[[bytes], bytes]) -> None:
    assert decompress(compress(b"data" * 1000)) == b"data" * 1000
