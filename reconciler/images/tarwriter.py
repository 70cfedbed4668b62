"""Writing tar headers: ustar, and pax(1) for what does not fit there."""

from __future__ import annotations

from dataclasses import replace

from reconciler.images.tar import BLOCK, XATTR, Header, Kind, padding

END = b"\0" * (2 * BLOCK)


def encode(header: Header) -> bytes:
    """Return the blocks that stand before a member's data, with a pax header where it needs one."""
    records: list[tuple[bytes, bytes]] = [(XATTR + key, value) for key, value in header.xattrs]
    name, link, numbers = header.name, header.link, {}
    if len(name) > 100:
        records.append((b"path", name))
        name = name[:100]
    if len(link) > 100:
        records.append((b"linkpath", link))
        link = link[:100]
    for field, digits in (("uid", 7), ("gid", 7), ("size", 11)):
        value = getattr(header, field)
        if value >= 8**digits:
            records.append((field.encode(), b"%d" % value))
            value = 0
        numbers[field] = value
    block = _ustar(replace(header, name=name, link=link, **numbers), header.kind.value)
    return (_pax_member(records) if records else b"") + block


def _pax_member(records: list[tuple[bytes, bytes]]) -> bytes:
    data = b"".join(_pax_record(key, value) for key, value in records)
    header = Header(name=b"PaxHeader", kind=Kind.FILE, size=len(data))
    return _ustar(header, b"x") + data + b"\0" * padding(len(data))


def _pax_record(key: bytes, value: bytes) -> bytes:
    rest = len(key) + len(value) + 3  # space, "=" and newline
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


def _ustar(header: Header, flag: bytes) -> bytes:
    fields = b"%07o\0%07o\0%07o\0%011o\0%011o\0" % (
        header.mode,
        header.uid,
        header.gid,
        header.size,
        header.mtime,
    )
    start = header.name.ljust(100, b"\0") + fields
    rest = flag + header.link.ljust(100, b"\0") + b"ustar\x0000"
    checksum = sum(start) + 256 + sum(rest)
    return (start + b"%06o\0 " % checksum + rest).ljust(BLOCK, b"\0")
