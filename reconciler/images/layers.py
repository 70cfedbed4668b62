"""Layers laid over one another in memory, and written out as one flat tar stream.

Whiteouts and type changes are settled on an index of headers (image-spec: layer.md); the data then
goes from the layers to the stream. No name ever meets a filesystem of the host's, so a link leads
nowhere: a path through one is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from reconciler.images.blob import Layer, LayerStream
from reconciler.images.tar import (
    BadArchive,
    Header,
    Kind,
    components,
    members,
    padding,
    skip_data,
)
from reconciler.images.tarwriter import END, encode

# Mount points the guest needs, whatever the image says.
NEEDED_DIRECTORIES = {
    b"data": 0o755,
    b"dev": 0o755,
    b"proc": 0o755,
    b"run": 0o755,
    b"sys": 0o755,
    b"tmp": 0o1777,
}

_WHITEOUT = b".wh."
_OPAQUE = b".wh..wh..opq"
_RESERVED = b".wh..wh."  # bookkeeping of AUFS, which no other filesystem gives a meaning
_MEMBERS_LIMIT = 2_000_000
_DEPTH_LIMIT = 256
_DATA_LIMIT_BYTES = 256 << 30
_COPY_BYTES = 1 << 20
_DEVICES = (Kind.CHARACTER_DEVICE, Kind.BLOCK_DEVICE)
_KEPT_XATTRS = (b"security.capability", b"user.")

Parts = tuple[bytes, ...]


@dataclass(slots=True)
class _Node:
    """A file of the image. One node under several names is a hard link."""

    header: Header
    children: dict[bytes, _Node] | None = None
    place: tuple[int, int] = (-1, -1)  # of a file's data: (layer, member)


@dataclass
class MergedLayers:
    """The image as one tree; `notes` say what of it was left out or changed, and why."""

    layers: Sequence[Layer]
    root: _Node
    notes: list[str] = field(default_factory=list)

    def newest_mtime(self) -> int:
        """Return the latest time stamp in the tree, in seconds."""
        return max((node.header.mtime for _, node in _walk(self.root)), default=0)

    def write(self, stream: BinaryIO) -> None:
        """Write the tree as a tar stream: directories first, data in the layers' order.

        Reads the layers again and verifies their digests again. Raises BadArchive and OSError.
        """
        names: dict[tuple[int, int], list[bytes]] = {}
        for path, node in _walk(self.root):
            if node.header.kind is Kind.FILE:
                names.setdefault(node.place, []).append(path)
            else:
                stream.write(encode(replace(node.header, name=path)))
        used = {index for index, _ in names}
        for index, layer in enumerate(self.layers):
            if index in used:
                _copy_files(layer.open(), index, names, stream)
        stream.write(END)


def merge(layers: Sequence[Layer]) -> MergedLayers:
    """Read every layer once and return the tree they make, the lowest first. Raises BadArchive."""
    tree = _Tree()
    for index, layer in enumerate(layers):
        stream = layer.open()
        tree.apply(list(_headers(stream, tree)), index)
        stream.finish()
    tree.finish()
    return MergedLayers(layers, tree.root, tree.notes)


class _Tree:
    """The tree while layers are applied to it."""

    def __init__(self) -> None:
        self.root = _Node(Header(b"", Kind.DIRECTORY, 0o755), {})
        self.notes: list[str] = []
        self.devices: list[Parts] = []
        self.members = 0
        self.data_bytes = 0

    def count(self, header: Header) -> None:
        self.members += 1
        self.data_bytes += header.size
        if self.members > _MEMBERS_LIMIT or self.data_bytes > _DATA_LIMIT_BYTES:
            raise BadArchive("the image holds too many files, or too much data")

    def apply(self, headers: list[Header], layer: int) -> None:
        """Lay one layer over the tree."""
        entries = [(components(header.name), header) for header in headers]
        # Whiteouts are about the layers below, wherever they stand in their own.
        for parts, _ in entries:
            if parts and parts[-1].startswith(_WHITEOUT):
                self._white_out(parts)
        for member, (parts, header) in enumerate(entries):
            if not any(part.startswith(_WHITEOUT) for part in parts):
                self._add(parts, header, (layer, member))

    def finish(self) -> None:
        """Make sure that the guest finds its mount points, and say what was left out."""
        if self.devices:
            first = _shown(self.devices[0])
            text = f"left out {len(self.devices)} devices ({first}, ...): a guest has its own /dev"
            self.notes.append(text)
        for name, mode in NEEDED_DIRECTORIES.items():
            found = _children(self.root).get(name)
            if found is None or found.children is None:
                if found is not None:
                    self.notes.append(f"/{name.decode()} of the image gave way to a directory")
                header = Header(name, Kind.DIRECTORY, mode)
                _children(self.root)[name] = _Node(header, {})

    def _white_out(self, parts: Parts) -> None:
        name = parts[-1]
        hidden = name[len(_WHITEOUT) :]
        if hidden in (b"", b".", b".."):
            raise BadArchive("the image holds a whiteout of nothing", details=_shown(parts))
        parent = self._find(parts[:-1])
        if parent is None or parent.children is None:
            return
        if name == _OPAQUE:
            parent.children.clear()
        elif not name.startswith(_RESERVED):
            parent.children.pop(hidden, None)

    def _add(self, parts: Parts, header: Header, place: tuple[int, int]) -> None:
        if not parts:
            if header.kind is not Kind.DIRECTORY:
                raise BadArchive("the image's root is not a directory")
            return
        if len(parts) > _DEPTH_LIMIT:
            raise BadArchive("the image's directories go too deep", details=_shown(parts[:8]))
        if header.kind in _DEVICES:
            self.devices.append(parts)
            return
        siblings = _children(self._parent(parts))
        if header.kind is Kind.HARD_LINK:
            siblings[parts[-1]] = self._link_target(parts, header)
        elif header.kind is Kind.DIRECTORY:
            old = siblings.get(parts[-1])
            kept = old.children if old is not None else None
            siblings[parts[-1]] = _Node(_cleaned(header), {} if kept is None else kept)
        else:
            siblings[parts[-1]] = _Node(_cleaned(header), place=place)

    def _parent(self, parts: Parts) -> _Node:
        """Return the directory that a new member goes to, made when no layer has it."""
        node = self.root
        for part in parts[:-1]:
            children = _children(node)
            found = children.get(part)
            if found is None:
                found = children[part] = _Node(Header(part, Kind.DIRECTORY, 0o755), {})
            elif found.children is None:
                raise BadArchive("a path in the image goes through a file", details=_shown(parts))
            node = found
        return node

    def _link_target(self, parts: Parts, header: Header) -> _Node:
        target = self._find(components(header.link))
        if target is None or target.children is not None:
            raise BadArchive(
                "a hard link in the image leads to no file of it", details=_shown(parts)
            )
        return target

    def _find(self, parts: Parts) -> _Node | None:
        node: _Node | None = self.root
        for part in parts:
            if node is None or node.children is None:
                return None
            node = node.children.get(part)
        return node


def _headers(stream: LayerStream, tree: _Tree) -> Iterator[Header]:
    for header in members(stream):
        tree.count(header)
        yield header
        skip_data(stream, header)


def _copy_files(
    source: LayerStream,
    layer: int,
    names: dict[tuple[int, int], list[bytes]],
    stream: BinaryIO,
) -> None:
    for member, header in enumerate(members(source)):
        paths = names.get((layer, member))
        if paths is None:
            skip_data(source, header)
            continue
        first = replace(_cleaned(header), name=paths[0])
        stream.write(encode(first))
        _copy(source, header.size, stream)
        source.skip(padding(header.size))
        for path in paths[1:]:
            link = replace(first, name=path, kind=Kind.HARD_LINK, link=paths[0], size=0, xattrs=())
            stream.write(encode(link))
    source.finish()


def _copy(source: LayerStream, size: int, stream: BinaryIO) -> None:
    left = size
    while left > 0:
        data = source.read(min(left, _COPY_BYTES))
        if not data:
            raise BadArchive("a layer of the image is cut short")
        stream.write(data)
        left -= len(data)
    stream.write(b"\0" * padding(size))


def _walk(root: _Node) -> Iterator[tuple[bytes, _Node]]:
    """Yield (path, node) for all but the root, parents first, in the order of names."""
    pending = [(b"", root)]
    while pending:
        prefix, directory = pending.pop()
        for name, node in sorted(_children(directory).items()):
            path = prefix + name
            yield path, node
            if node.children is not None:
                pending.append((path + b"/", node))


def _children(node: _Node) -> dict[bytes, _Node]:
    assert node.children is not None, "only directories are entered"
    return node.children


def _cleaned(header: Header) -> Header:
    kept = tuple((key, value) for key, value in header.xattrs if key.startswith(_KEPT_XATTRS))
    return replace(header, xattrs=kept)


def _shown(parts: Parts) -> str:
    return ascii(b"/" + b"/".join(parts)[:200])[2:-1]
