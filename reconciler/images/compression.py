"""Whole-file decompression of kernels and modules, which come from a signed package."""

from __future__ import annotations

import lzma
import zlib
from pathlib import Path

from reconciler.errors import BoxError
from reconciler.linux.process import require_program, run

GZIP = b"\x1f\x8b"
XZ = b"\xfd7zXZ\0"
ZSTD = b"\x28\xb5\x2f\xfd"
LZ4_LEGACY = b"\x02\x21\x4c\x18"  # what the kernel's build uses: `lz4 -l`

_LIMIT_BYTES = 512 << 20
_TIMEOUT_SECONDS = 120.0


class NotDecompressed(BoxError):
    """Compressed data is broken, longer than the limit, or in a format that is not known."""


def decompress(data: bytes) -> bytes:
    """Return what gzip, xz, zstd or legacy lz4 `data` holds, at most 512 MiB.

    What follows the compressed stream is ignored by gzip and xz, and an error for the others. zstd
    and lz4 need the program of that name: Missing tells how to install it.
    """
    if data.startswith(GZIP):
        return _gzip(data)
    if data.startswith(XZ):
        return _xz(data)
    if data.startswith(ZSTD):
        return _filter("zstd", data)
    if data.startswith(LZ4_LEGACY):
        return _filter("lz4", data)
    raise NotDecompressed("unknown compression", details=f"it begins with {data[:6].hex(' ')}")


def _gzip(data: bytes) -> bytes:
    decoder = zlib.decompressobj(wbits=31)
    try:
        plain = decoder.decompress(data, _LIMIT_BYTES)
    except zlib.error as error:
        raise NotDecompressed("broken gzip data", details=str(error)) from error
    return _whole(plain, eof=decoder.eof)


def _xz(data: bytes) -> bytes:
    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    try:
        plain = decoder.decompress(data, _LIMIT_BYTES)
    except lzma.LZMAError as error:
        raise NotDecompressed("broken xz data", details=str(error)) from error
    return _whole(plain, eof=decoder.eof)


def _whole(plain: bytes, *, eof: bool) -> bytes:
    if not eof:
        raise NotDecompressed("compressed data is cut short or too long")
    return plain


def _filter(program: str, data: bytes) -> bytes:
    argv: list[str | Path] = [require_program(program, program), "-d", "-c", "-q"]
    return run(
        argv, stdin=data, timeout_seconds=_TIMEOUT_SECONDS, output_limit_bytes=_LIMIT_BYTES
    ).stdout
