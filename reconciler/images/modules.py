"""Which kernel modules a guest needs, and the order in which they load."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from reconciler.errors import Missing
from reconciler.images.compression import decompress

REQUIRED = ("virtio_mmio", "virtio_console", "virtio_blk", "overlay", "ext4")
# A root image is one of the two filesystems. ext4 and erofs ask for the checksum by name at run
# time, where no modprobe is: it has to be there first.
OPTIONAL = ("crc32c_generic", "erofs", "squashfs")

_MODULE = re.compile(r"^(?P<name>[A-Za-z0-9_-]+)\.ko(\.(xz|gz|zst))?$")
_ELF = b"\x7fELF"


@dataclass(frozen=True)
class Module:
    """One module: `name` with underscores, `data` the plain ELF file."""

    name: str
    data: bytes


def needed_modules(directory: Path, release: str) -> tuple[Module, ...]:
    """Return the modules under `directory` that a guest needs, each after those it depends on.

    What modules.builtin lists, and what neither is there nor could be (no such list), is taken as
    built in. Raises Missing when the kernel lacks something a guest cannot do without.
    """
    files = _module_files(directory)
    builtin = _builtin(directory)
    if builtin is not None:
        lacking = [name for name in REQUIRED if name not in files and name not in builtin]
        if lacking:
            raise Missing(
                f"the kernel {release} cannot run a guest: it has no {', '.join(lacking)}",
                hint="set BOX_KERNEL to another kernel image",
            )
    return _in_load_order((*OPTIONAL, *REQUIRED), files)


def dependencies(module: bytes) -> tuple[str, ...]:
    """Return what the .modinfo section of a plain .ko file says it depends on.

    The packages hold no modules.dep: that is made by depmod when a kernel is installed.
    """
    found: list[str] = []
    for entry in re.findall(rb"\0(?:depends=|softdep=pre: )([A-Za-z0-9_, -]+)(?=\0)", module):
        found += re.split("[, ]+", entry.decode())
    return tuple(dict.fromkeys(name.replace("-", "_") for name in found if name))


def _in_load_order(wanted: Iterable[str], files: dict[str, Path]) -> tuple[Module, ...]:
    order: dict[str, Module] = {}
    visiting: set[str] = set()

    def visit(name: str) -> None:
        if name not in files or name in visiting:
            return
        visiting.add(name)
        data = _plain(files[name])
        for dependency in dependencies(data):
            visit(dependency)
        order[name] = Module(name, data)

    for name in wanted:
        visit(name)
    return tuple(order.values())


def _plain(path: Path) -> bytes:
    data = path.read_bytes()
    return data if data.startswith(_ELF) else decompress(data)


def _module_files(directory: Path) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in sorted(directory.rglob("*.ko*")):
        match = _MODULE.match(path.name)
        if match:
            files.setdefault(match["name"].replace("-", "_"), path)
    return files


def _builtin(directory: Path) -> frozenset[str] | None:
    try:
        text = (directory / "modules.builtin").read_text()
    except FileNotFoundError:
        return None
    names = (Path(line).name.partition(".")[0] for line in text.split())
    return frozenset(name.replace("-", "_") for name in names)
