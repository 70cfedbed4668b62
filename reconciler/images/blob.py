"""A layer's bytes in an image archive: hashed and decompressed on their way, within bounds."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import os
import sys
import zlib
from dataclasses import dataclass
from typing import BinaryIO, Protocol, cast

from reconciler.errors import Missing
from reconciler.images.tar import BadArchive

_CHUNK_BYTES = 1 << 18
# A bomb may cost a few seconds and no memory; real layers are compressed 2:1 to 10:1.
_LAYER_LIMIT_BYTES = 64 << 30
_RATIO_LIMIT = 200
_RATIO_FREE_BYTES = 1 << 30
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_ZSTD_WINDOW_BYTES = 128 << 20


@dataclass(frozen=True)
class Layer:
    """One layer's blob in the open archive."""

    fd: int
    offset: int
    size: int
    sha256: str

    def open(self) -> LayerStream:
        """Return its tar stream from the start; every reading verifies the digest anew."""
        return LayerStream(self)


class LayerStream:
    """A layer, decompressed as it is read (a tar `Source`). Raises BadArchive."""

    def __init__(self, layer: Layer) -> None:
        self._blob = Blob(layer)
        self._plain = _decompressed(self._blob)
        self._left = min(_LAYER_LIMIT_BYTES, _RATIO_FREE_BYTES + _RATIO_LIMIT * layer.size)

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes, less only at the end."""
        parts: list[bytes] = []
        while size > 0 and (data := self._some(size)):
            parts.append(data)
            size -= len(data)
        return b"".join(parts)

    def skip(self, size: int) -> None:
        """Pass over `size` bytes; the end of the layer must not come before."""
        while size > 0:
            got = len(self.read(min(size, _CHUNK_BYTES)))
            if not got:
                raise BadArchive("a layer of the image is cut short")
            size -= got

    def finish(self) -> None:
        """Read what is left and compare the digest: only now is what was read to be trusted."""
        while self.read(_CHUNK_BYTES):
            pass
        self._blob.finish()

    def _some(self, size: int) -> bytes:
        try:
            data = self._plain.read(size)
        except _decoder_errors() as error:
            raise BadArchive("a layer of the image is broken", details=str(error)) from error
        self._left -= len(data)
        if self._left < 0:
            raise BadArchive("a layer of the image expands beyond every measure")
        return data


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes:
        """Return some of the next `size` bytes, none at the end."""


class Blob:
    """The bytes of a blob as they lie in the archive, hashed on their way."""

    def __init__(self, layer: Layer) -> None:
        self._fd = layer.fd
        self._position = layer.offset
        self._end = layer.offset + layer.size
        self._expected = layer.sha256
        self._hash = hashlib.sha256()

    def peek(self) -> bytes:
        """Return the next four bytes without passing over them."""
        return os.pread(self._fd, min(4, self._end - self._position), self._position)

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes, less only at the end."""
        data = os.pread(self._fd, min(size, self._end - self._position), self._position)
        self._position += len(data)
        self._hash.update(data)
        return data

    def finish(self) -> None:
        """Read to the end and compare the digest. Raises BadArchive."""
        while self.read(_CHUNK_BYTES):
            pass
        if self._hash.hexdigest() != self._expected:
            raise BadArchive("a blob of the image does not have its digest")


def _decompressed(blob: Blob) -> _Readable:
    # By what the bytes are: media types are often those of another compression.
    head = blob.peek()
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=cast("BinaryIO", blob), mode="rb")
    if head.startswith(_ZSTD):
        return _zstd_reader(blob)
    return blob


def _zstd_reader(blob: Blob) -> _Readable:
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError as error:
        raise Missing(
            "the image has layers compressed with zstd, which takes the Python package zstandard",
            hint="install zstandard beside box, or save the image with gzip layers",
        ) from error
    # It takes a frame that is cut short for a whole one; the tar reader notices within a member.
    decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    return cast("_Readable", decoder.stream_reader(blob, read_across_frames=True))


def _decoder_errors() -> tuple[type[Exception], ...]:
    errors: tuple[type[Exception], ...] = (EOFError, gzip.BadGzipFile, zlib.error)
    zstandard = sys.modules.get("zstandard")
    return errors if zstandard is None else (*errors, zstandard.ZstdError)
