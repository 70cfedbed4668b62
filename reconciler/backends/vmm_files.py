"""The files of the host that QEMU is made of: its program, libraries, plugins and firmware."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from reconciler.errors import Missing
from reconciler.images import fingerprint
from reconciler.linux import files, process
from reconciler.vmm import qemu

_PACKAGES = {"x86_64": "qemu-system-x86", "aarch64": "qemu-system-arm"}
_FIRMWARE = {
    "x86_64": ("bios-microvm.bin", "qboot.rom", "pvh.bin", "linuxboot_dma.bin"),
    "aarch64": ("efi-virtio.rom",),
}
_FIRMWARE_DIRECTORIES = (
    "/usr/share/qemu",
    "/usr/share/seabios",
    "/usr/share/qboot",
    "/usr/lib/ipxe/qemu",
    "/usr/share/ipxe/qemu",
)
_PLUGINS = ("accel-tcg-{arch}.so",)
_PLUGIN_DIRECTORIES = ("/usr/lib/{arch}-linux-gnu/qemu", "/usr/lib64/qemu", "/usr/lib/qemu")
_LOADER_CACHE = Path("/etc/ld.so.cache")


@dataclass(frozen=True)
class VmmFiles:
    """Absolute paths on the host."""

    binary: Path
    libraries: tuple[Path, ...]
    plugins: tuple[Path, ...]
    firmware: tuple[Path, ...]

    def everything(self) -> tuple[Path, ...]:
        """All of them: what the proof of the kernel boundary depends on."""
        return (self.binary, *self.libraries, *self.plugins, *self.firmware)


def find_vmm_files(home: Path, arch: str) -> VmmFiles:
    """QEMU's files for guests of `arch`; asking the loader happens once per version of them.

    Raises Missing with the command that installs QEMU.
    """
    binary = process.require_program(qemu.binary_name(arch), _PACKAGES.get(arch, "qemu-system"))
    plugins = _existing(_PLUGIN_DIRECTORIES, _PLUGINS, arch)
    firmware = firmware_files(arch)
    if not firmware:
        raise Missing(
            "QEMU's firmware files are not installed.",
            details=f"looked in {', '.join(_FIRMWARE_DIRECTORIES)}",
            hint=process.install_command("qemu-system-data"),
        )
    libraries = _libraries(home, binary, plugins)
    return VmmFiles(binary, libraries, plugins, firmware)


def firmware_files(arch: str) -> tuple[Path, ...]:
    """The firmware for guests of `arch` that this host has."""
    return _existing(_FIRMWARE_DIRECTORIES, _FIRMWARE.get(arch, ()), arch)


def _libraries(home: Path, binary: Path, plugins: tuple[Path, ...]) -> tuple[Path, ...]:
    cache = home / "libraries.json"
    key = " ".join(_stamp(path) for path in (binary, *plugins, _LOADER_CACHE))
    try:
        known = files.read_json(cache)
        paths = tuple(Path(path) for path in known["paths"])
        if known["key"] == key and all(path.exists() for path in paths):
            return paths
    except (FileNotFoundError, files.BrokenFile, KeyError, TypeError):
        pass
    paths = fingerprint.library_closure(binary, plugins)
    files.write_json(cache, {"key": key, "paths": [str(path) for path in paths]})
    return paths


def _stamp(path: Path) -> str:
    try:
        facts = path.stat()
    except FileNotFoundError:
        return f"{path}:none"
    return f"{path}:{facts.st_dev}:{facts.st_ino}:{facts.st_size}:{facts.st_mtime_ns}"


def _existing(directories: tuple[str, ...], names: tuple[str, ...], arch: str) -> tuple[Path, ...]:
    found: dict[str, Path] = {}
    for directory in directories:
        for name in names:
            path = Path(directory.format(arch=arch)) / name.format(arch=arch)
            if path.name not in found and os.access(path, os.R_OK):
                found[path.name] = path
    return tuple(found.values())
