"""The files of the host that QEMU is made of: its program, libraries, plugins and firmware.

And env(1), which starts it with an empty environment: OCI runtimes set HOME where the spec has
none, and runc where it is empty there too.
"""

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
# The other one is GNU's where uutils is the first (Ubuntu).
_ENVS = ("env", "gnuenv")
_ENV_SECONDS = 20.0
# Says its PID, and what it has become says its own and its environment.
_ASK_ENV = """echo $$; exec "$0" -i /bin/sh -c 'echo $$; read -r x </proc/$$/environ; echo "$x"'"""


@dataclass(frozen=True)
class VmmFiles:
    """Absolute paths on the host. `libraries` are those of `env` too."""

    binary: Path
    libraries: tuple[Path, ...]
    plugins: tuple[Path, ...]
    firmware: tuple[Path, ...]
    env: Path

    def everything(self) -> tuple[Path, ...]:
        """All of them: what the proof of the kernel boundary depends on."""
        return (self.binary, *self.libraries, *self.plugins, *self.firmware, self.env)


def find_vmm_files(home: Path, arch: str) -> VmmFiles:
    """QEMU's files for guests of `arch`; asking the loader happens once per version of them.

    Raises Missing with the command that installs QEMU, or an `env` that empties an environment.
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
    env, libraries = _env_and_libraries(home, binary, plugins)
    return VmmFiles(binary, libraries, plugins, firmware, env)


def firmware_files(arch: str) -> tuple[Path, ...]:
    """The firmware for guests of `arch` that this host has."""
    return _existing(_FIRMWARE_DIRECTORIES, _FIRMWARE.get(arch, ()), arch)


def find_env() -> Path:
    """An env(1) that is fit to start a VMM. Raises Missing.

    It may be one program of many names (busybox, uutils), which goes by how it is called.
    """
    found = _envs()
    for path in found:
        if becomes_it(path):
            return path
    tried = f"tried {', '.join(map(str, found))}: uutils' before 0.2 starts it as a child"
    raise Missing(
        "No env(1) of this host becomes the program that it starts, with an empty environment.",
        details=tried if found else None,
        hint=process.install_command("gnu-coreutils" if found else "coreutils"),
    )


def _envs() -> list[Path]:
    return [path for name in _ENVS if (path := process.find_program(name))]


def becomes_it(env: Path) -> bool:
    """Whether what `env` starts has its PID, and no environment. Raises CommandFailed."""
    command: list[str | Path] = ["/bin/sh", "-c", _ASK_ENV, env]
    said = process.run(command, timeout_seconds=_ENV_SECONDS, check=False).stdout
    before, _, after = said.partition(b"\n")
    return bool(before) and after == before + b"\n\n"


def _env_and_libraries(
    home: Path, binary: Path, plugins: tuple[Path, ...]
) -> tuple[Path, tuple[Path, ...]]:
    cache = home / "libraries.json"
    key = " ".join(_stamp(path) for path in (binary, *plugins, *_envs(), _LOADER_CACHE))
    try:
        known = files.read_json(cache)
        env, *libraries = (Path(path) for path in (known["env"], *known["paths"]))
        if known["key"] == key and all(path.exists() for path in (env, *libraries)):
            return env, tuple(libraries)
    except (FileNotFoundError, files.BrokenFile, KeyError, TypeError):
        pass
    env = find_env()
    found = {*fingerprint.library_closure(binary, plugins), *fingerprint.library_closure(env)}
    paths = tuple(sorted(found))
    value = {"key": key, "env": str(env), "paths": [str(path) for path in paths]}
    files.write_json(cache, value)
    return env, paths


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
