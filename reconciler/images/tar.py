"""Reading tar headers within bounds: pax(1), ustar, and GNU's long names.

Own code, because the archives are hostile: names are bytes, every length is checked before anything
is allocated for it, and what is not understood is refused rather than guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from reconciler.errors import Refused

BLOCK = 512

_NAME_LIMIT_BYTES = 4096  # PATH_MAX
_COMPONENT_LIMIT_BYTES = 255  # NAME_MAX
_PAX_LIMIT_BYTES = 1 << 20
# Of pax's and GNU's headers before one member, which are kept until it comes.
_EXTENSIONS_LIMIT = 16
_SIZE_LIMIT_BYTES = 1 << 40
_ID_LIMIT = 0xFFFFFFFE  # (uid_t)-1 means "no change" to chown(2)
XATTR = b"SCHILY.xattr."
_PAX_LENGTH = re.compile(rb"[1-9][0-9]{0,6} ")


class BadArchive(Refused):
    """An archive breaks a rule; nothing of it is used."""


class Kind(Enum):
    """What a member is, by its type flag."""

    FILE = b"0"
    HARD_LINK = b"1"
    SYMLINK = b"2"
    CHARACTER_DEVICE = b"3"
    BLOCK_DEVICE = b"4"
    DIRECTORY = b"5"
    FIFO = b"6"


@dataclass(frozen=True, slots=True)
class Header:
    """One member. `size` is that of a file's data, 0 for every other kind."""

    name: bytes
    kind: Kind
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime: int = 0
    size: int = 0
    link: bytes = b""
    xattrs: tuple[tuple[bytes, bytes], ...] = ()


class Source(Protocol):
    """Bytes in order; `read` gives less than asked for only at the end."""

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes."""

    def skip(self, size: int) -> None:
        """Pass over `size` bytes."""


def members(source: Source) -> Iterator[Header]:
    """Yield the members of a tar stream; the caller may read a file's data before the next one.

    The data begins where `source` stands and is padded to whole blocks: see `skip_data`, which has
    to be called, or `padding` bytes skipped, before going on. An archive may end without the two
    zero blocks, but not within a member. Raises BadArchive.
    """
    extended: dict[bytes, bytes] = {}
    extensions = 0
    while (block := source.read(BLOCK)) and block.strip(b"\0"):
        if len(block) != BLOCK:
            raise BadArchive("the archive is cut short")
        _verify_checksum(block)
        flag = block[156:157]
        size = _number(block[124:136], "size")
        extensions += 1
        if extensions > _EXTENSIONS_LIMIT + 1:
            raise BadArchive("a member of the archive has too many headers")
        if flag == b"x":
            extended.update(_pax_records(_metadata(source, size, _PAX_LIMIT_BYTES)))
        elif flag == b"g":
            _metadata(source, size, _PAX_LIMIT_BYTES)
        elif flag in (b"L", b"K"):
            # GNU tar: the name, or link target, of the next member.
            name = _metadata(source, size, _NAME_LIMIT_BYTES + 1).rstrip(b"\0")
            extended[b"path" if flag == b"L" else b"linkpath"] = name
        else:
            yield _header(block, flag, size, extended)
            extended = {}
            extensions = 0
    if extended:
        raise BadArchive("the archive ends within a member")


def padding(size: int) -> int:
    """Return how many bytes follow `size` bytes of data up to a whole block."""
    return -size % BLOCK


def skip_data(source: Source, header: Header) -> None:
    """Pass over the data of a member that was not read."""
    source.skip(header.size + padding(header.size))


def components(name: bytes) -> tuple[bytes, ...]:
    """Return the parts of a member's name, () for the root itself.

    Raises BadArchive for a name that is absolute, climbs (`..`) or is longer than Linux allows.
    """
    if name.startswith(b"/"):
        raise BadArchive("a name in the archive is absolute", details=_shown(name))
    parts = tuple(part for part in name.split(b"/") if part not in (b"", b"."))
    if b".." in parts:
        raise BadArchive("a name in the archive climbs out of it", details=_shown(name))
    if len(name) > _NAME_LIMIT_BYTES or any(len(part) > _COMPONENT_LIMIT_BYTES for part in parts):
        raise BadArchive("a name in the archive is too long", details=_shown(name))
    return parts


def _header(block: bytes, flag: bytes, size: int, extended: dict[bytes, bytes]) -> Header:
    name = extended.get(b"path", _ustar_name(block))
    if b"GNU.sparse.major" in extended or any(k.startswith(b"GNU.sparse") for k in extended):
        raise BadArchive("the archive holds a sparse member", details=_shown(name))
    kind = _kind(flag, name)
    if kind is not Kind.FILE:
        size = 0
    elif b"size" in extended:
        size = _decimal(extended[b"size"], "size", _SIZE_LIMIT_BYTES)
    link = extended.get(b"linkpath", _text(block[157:257]))
    if not name or b"\0" in name or b"\0" in link:
        raise BadArchive("a name in the archive is empty or holds NUL", details=_shown(name))
    if len(link) > _NAME_LIMIT_BYTES:
        raise BadArchive("a link target in the archive is too long", details=_shown(name))
    return Header(
        name=name,
        kind=kind,
        mode=_number(block[100:108], "mode") & 0o7777,
        uid=_identifier(block[108:116], extended, "uid"),
        gid=_identifier(block[116:124], extended, "gid"),
        mtime=_mtime(block[136:148], extended),
        size=size,
        link=link,
        xattrs=tuple(
            (key[len(XATTR) :], value) for key, value in extended.items() if key.startswith(XATTR)
        ),
    )


def _kind(flag: bytes, name: bytes) -> Kind:
    if flag in (b"\0", b"0"):
        # Before there was a flag for directories, a slash at the end said it.
        return Kind.DIRECTORY if name.endswith(b"/") else Kind.FILE
    try:
        return Kind(flag)
    except ValueError:
        raise BadArchive(
            f"the archive holds a member of unknown type {flag!r}", details=_shown(name)
        ) from None


def _ustar_name(block: bytes) -> bytes:
    name = _text(block[0:100])
    # GNU tar has other fields where POSIX has the prefix, and says so by another magic.
    prefix = _text(block[345:500]) if block[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _text(field: bytes) -> bytes:
    return field.split(b"\0", 1)[0]


def _number(field: bytes, what: str) -> int:
    if field[0] & 0x80:
        value = int.from_bytes(field, "big", signed=False) ^ (0x80 << 8 * (len(field) - 1))
        if field[0] != 0x80 or value > _SIZE_LIMIT_BYTES:
            raise BadArchive(f"a {what} in the archive is out of range")
        return value
    digits = field.strip(b" \0")
    if not digits:
        return 0
    if digits.strip(b"01234567"):
        raise BadArchive(f"a {what} in the archive is not a number")
    value = int(digits, 8)
    if value > _SIZE_LIMIT_BYTES:
        raise BadArchive(f"a {what} in the archive is out of range")
    return value


def _decimal(text: bytes, what: str, limit: int) -> int:
    if not text.isdigit() or len(text) > 20 or int(text) > limit:
        raise BadArchive(f"a {what} in the archive is out of range")
    return int(text)


def _identifier(field: bytes, extended: dict[bytes, bytes], what: str) -> int:
    text = extended.get(what.encode())
    value = _number(field, what) if text is None else _decimal(text, what, _ID_LIMIT)
    if value > _ID_LIMIT:
        raise BadArchive(f"a {what} in the archive is out of range")
    return value


def _mtime(field: bytes, extended: dict[bytes, bytes]) -> int:
    """Return whole seconds between 1970 and 2106, which is what the filesystems hold."""
    text = extended.get(b"mtime")
    if text is not None:
        seconds = text.split(b".")[0]
        return min(int(seconds), 0xFFFFFFFF) if seconds.isdigit() and len(seconds) < 20 else 0
    if field[0] & 0x80:  # before 1970, or far away
        return 0
    return min(_number(field, "time"), 0xFFFFFFFF)


def _verify_checksum(block: bytes) -> None:
    # The field itself counts as eight spaces.
    field = block[148:156].strip(b" \0")
    wanted = sum(block[:148]) + 256 + sum(block[156:])
    if not field or field.strip(b"01234567") or int(field, 8) != wanted:
        raise BadArchive("it is not a tar archive, or has a broken header")


def _metadata(source: Source, size: int, limit: int) -> bytes:
    if size > limit:
        raise BadArchive("a header in the archive is too long", details=f"{size} bytes")
    data = source.read(size)
    source.skip(padding(size))
    if len(data) != size:
        raise BadArchive("the archive is cut short")
    return data


def _pax_records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = 0
    while position < len(data):
        length = _PAX_LENGTH.match(data, position)
        end = position + int(length.group()) if length else 0
        if length is None or end > len(data) or data[end - 1 : end] != b"\n":
            raise BadArchive("the archive holds a broken pax header")
        key, separator, value = data[length.end() : end - 1].partition(b"=")
        if not separator or not key:
            raise BadArchive("the archive holds a broken pax header")
        yield key, value
        position = end


def _shown(name: bytes) -> str:
    """Return a name for a terminal: escaped and cut."""
    return ascii(name[:200])[2:-1]
