"""A tar stream passed on member by member: what comes out is safe to unpack, whoever made it."""

from __future__ import annotations

from dataclasses import replace

from reconciler.engine.archives.pipes import Stream
from reconciler.images.tar import BadArchive, Header, Kind, components, members, padding, skip_data
from reconciler.images.tarwriter import END, encode
from reconciler.linux import files

_COPY_BYTES = 1 << 18
_LINKS_LIMIT_BYTES = 64 << 20
_PASSED_ON = (Kind.FILE, Kind.HARD_LINK, Kind.SYMLINK, Kind.DIRECTORY)


def relay(stream: Stream, output: int) -> None:
    """Write an archive anew to an open file, without owners, special modes and attributes.

    Raises BadArchive when a name, or a hard link's target, is absolute, climbs, leads through a
    link of the archive or takes the place of one, and for devices and fifos; OSError. Then the
    archive that was written has no end.
    """
    links = _Links()
    for header in members(stream):
        name = links.checked(header)
        if name:
            files.write_all(output, encode(_plain(header, name)))
            _copy(stream, header.size, output)
        else:
            skip_data(stream, header)
    stream.finish()
    files.write_all(output, END)


def _plain(header: Header, name: bytes) -> Header:
    return replace(header, name=name, mode=header.mode & 0o777, uid=0, gid=0, xattrs=())


def _copy(stream: Stream, size: int, output: int) -> None:
    left = size
    while left > 0:
        data = stream.read(min(left, _COPY_BYTES))
        if not data:
            raise BadArchive("the archive is cut short")
        files.write_all(output, data)
        left -= len(data)
    stream.skip(padding(size))
    files.write_all(output, b"\0" * padding(size))


class _Links:
    """The links that an archive has planted so far."""

    def __init__(self) -> None:
        self._names: set[bytes] = set()
        self._left = _LINKS_LIMIT_BYTES

    def checked(self, header: Header) -> bytes:
        """Return the member's name, b"" for the top itself."""
        parts = components(header.name)
        name = b"/".join(parts)
        if header.kind not in _PASSED_ON:
            raise BadArchive("the archive holds a device or a fifo", details=_shown(name))
        self._check(parts)
        if header.kind is Kind.HARD_LINK:
            self._check(components(header.link))
        if header.kind is Kind.SYMLINK:
            self._left -= len(name)
            if self._left < 0:
                raise BadArchive("the archive holds too many links")
            self._names.add(name)
        return name

    def _check(self, parts: tuple[bytes, ...]) -> None:
        for length in range(1, len(parts) + 1):
            if b"/".join(parts[:length]) in self._names:
                name = _shown(b"/".join(parts))
                raise BadArchive("a name in the archive leads through a link", details=name)


def _shown(name: bytes) -> str:
    return ascii(name[:200])[2:-1]
