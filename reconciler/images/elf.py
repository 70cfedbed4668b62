"""The one fact box needs of an ELF file: which loader it asks for (elf(5))."""

from __future__ import annotations

import struct
from pathlib import Path

from reconciler.errors import BoxError

_PT_INTERP = 3
_HEADER_BYTES = 64
_PROGRAM_HEADER_BYTES = 56
_INTERPRETER_LIMIT_BYTES = 4096


class NotElf(BoxError):
    """The file is not a 64-bit little-endian ELF program."""


def interpreter(path: Path) -> Path | None:
    """Return the loader that `path` asks for (PT_INTERP), or None when it is static.

    Raises NotElf, and OSError with the path.
    """
    with path.open("rb") as stream:
        header = stream.read(_HEADER_BYTES)
        if len(header) < _HEADER_BYTES or header[:6] != b"\x7fELF\x02\x01":
            raise NotElf(f"{path} is not a 64-bit ELF program")
        table = int.from_bytes(header[32:40], "little")
        size, count = struct.unpack_from("<HH", header, 54)
        if size != _PROGRAM_HEADER_BYTES:
            raise NotElf(f"{path} has ELF program headers of {size} bytes")
        for index in range(count):
            stream.seek(table + index * size)
            kind, offset, length = _program_header(stream.read(size), path)
            if kind == _PT_INTERP:
                stream.seek(offset)
                name = stream.read(min(length, _INTERPRETER_LIMIT_BYTES))
                return Path(name.split(b"\0")[0].decode(errors="surrogateescape"))
    return None


def _program_header(data: bytes, path: Path) -> tuple[int, int, int]:
    if len(data) != _PROGRAM_HEADER_BYTES:
        raise NotElf(f"{path} is cut short")
    return (
        int.from_bytes(data[0:4], "little"),
        int.from_bytes(data[8:16], "little"),
        int.from_bytes(data[32:40], "little"),
    )
