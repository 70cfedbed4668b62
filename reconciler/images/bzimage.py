"""The kernel inside an x86 boot image (Documentation/arch/x86/boot.rst)."""

from __future__ import annotations

import re
import struct

from reconciler.images.compression import LZ4_LEGACY, XZ, ZSTD, NotDecompressed, decompress

_SETUP_SECTORS = 0x1F1
_MAGIC = 0x202
_PROTOCOL = 0x206
_VERSION_STRING = 0x20E
_PAYLOAD = 0x248
_PAYLOAD_PROTOCOL = 0x0208  # the first that has payload_offset and payload_length
_SECTOR = 512
_ELF = b"\x7fELF"


def is_bzimage(image: bytes) -> bool:
    """Whether `image` is an x86 boot image that says where its payload is."""
    return (
        len(image) >= _PAYLOAD + 8
        and image[_MAGIC : _MAGIC + 4] == b"HdrS"
        and _u16(image, _PROTOCOL) >= _PAYLOAD_PROTOCOL
    )


def vmlinux(image: bytes) -> bytes:
    """Return the ELF kernel that the bzImage `image` decompresses at boot.

    Raises NotDecompressed, or Missing when the program that could unpack it is not installed.
    """
    offset, length = struct.unpack_from("<II", image, _PAYLOAD)
    start = ((image[_SETUP_SECTORS] or 4) + 1) * _SECTOR + offset
    payload = image[start : start + length]
    if payload.startswith((LZ4_LEGACY, XZ, ZSTD)):
        # The kernel's build appends the unpacked size; gzip has it at its own end.
        payload = payload[:-4]
    plain = decompress(payload)
    if not plain.startswith(_ELF):
        raise NotDecompressed("the boot image holds no ELF kernel")
    return plain


def release(image: bytes) -> str | None:
    """Return the release (`uname -r`) that an unpacked kernel or a bzImage names, if any."""
    banner = re.search(rb"Linux version ([\x21-\x7e]{1,64}) \(", image)
    if banner is not None:
        return banner.group(1).decode()
    if is_bzimage(image):
        start = _u16(image, _VERSION_STRING) + 0x200
        words = image[start : start + 64].split(b"\0")[0].split()
        if words:
            return words[0].decode("ascii", "replace")
    return None


def _u16(image: bytes, offset: int) -> int:
    return int.from_bytes(image[offset : offset + 2], "little")
