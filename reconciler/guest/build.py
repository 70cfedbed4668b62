"""Making the guest agent's binary: from the sources beside this file, for any architecture.

The digest of sources and flags is part of the agent's version, so that a binary tells by itself
whether it is of these sources. Standard library only: the wheel's build uses this module too.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

from reconciler.errors import Missing
from reconciler.linux.process import find_program, inherited, install_command, run

SOURCES = Path(__file__).parent / "agent"
ARCHITECTURES = ("x86_64", "aarch64")

_COMPILE_SECONDS = 900.0

_FLAGS = (
    "-std=gnu11 -D_GNU_SOURCE -Os -static -s -fno-strict-aliasing -fstack-protector-strong"
    " -Wall -Wextra -Werror -Wshadow -Wundef -Wvla -Wformat=2 -Wpointer-arith -Wcast-align"
    " -Wcast-qual -Wwrite-strings -Wstrict-prototypes -Wmissing-prototypes -Wconversion"
    " -Wsign-conversion -Wimplicit-fallthrough -Wl,--build-id=none"
).split()


def host_architecture() -> str:
    """The machine's name as the kernel says it: x86_64, aarch64."""
    return os.uname().machine


def agent_version() -> str:
    """The version of the sources beside this module: protocol.digest."""
    digest = hashlib.sha256(" ".join(_FLAGS).encode())
    for path in sorted(SOURCES.glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return f"1.{digest.hexdigest()[:16]}"


def build_agent(target_dir: Path, arch: str | None = None) -> Path:
    """Compile the agent to target_dir/box-agent-<arch>, replacing an older one at once.

    arch is the host's when not given. Uses PyPI's ziglang, which cross-compiles, else musl-gcc.
    Raises Missing when there is no compiler for arch, CommandFailed with its words when it fails.
    """
    arch = arch or host_architecture()
    target = target_dir / f"box-agent-{arch}"
    with tempfile.TemporaryDirectory(prefix=".agent-", dir=target_dir) as scratch:
        made = Path(scratch) / target.name
        sources = sorted(str(path) for path in SOURCES.glob("*.c"))
        version = f'-DAGENT_VERSION="{agent_version()}"'
        command = [*_compiler(arch), *_FLAGS, version, *sources, "-o", str(made)]
        # ziglang keeps its compiled libc in a cache below HOME; the first time takes a minute.
        run(command, env=inherited("HOME"), timeout_seconds=_COMPILE_SECONDS)
        made.chmod(0o755)
        made.replace(target)
    return target


def _compiler(arch: str) -> list[str]:
    if arch not in ARCHITECTURES:
        raise Missing(f"there is no guest agent for {arch}", hint="use x86_64 or aarch64")
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc", "-target", f"{arch}-linux-musl"]
    musl_gcc = find_program("musl-gcc")
    if musl_gcc and arch == host_architecture():
        return [str(musl_gcc)]
    raise Missing(
        f"no compiler for the guest agent ({arch})",
        hint=f"{sys.executable} -m pip install ziglang, or {install_command('musl-tools')}",
    )


def find_agent(arch: str | None = None) -> Path:
    """The agent's binary for arch (the host's when not given).

    A wheel carries it; in a checkout it is compiled when it is missing or of other sources. Raises
    what build_agent raises.
    """
    arch = arch or host_architecture()
    return built_agent(arch) or build_agent(SOURCES, arch)


def built_agent(arch: str) -> Path | None:
    """The agent's binary for arch if it is there and of these sources."""
    binary = SOURCES / f"box-agent-{arch}"
    if not binary.is_file():
        return None
    in_wheel = not any(SOURCES.glob("*.c"))
    return binary if in_wheel or agent_version().encode() in binary.read_bytes() else None


def has_compiler(arch: str) -> bool:
    """Whether build_agent would find a compiler for arch."""
    try:
        return bool(_compiler(arch))
    except Missing:
        return False
