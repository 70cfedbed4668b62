"""Making the probe: one static program of the sources beside this file, as the agent is built."""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCES = Path(__file__).parent
_FLAGS = (
    "-std=gnu11 -Os -static -s -Wall -Wextra -Werror -Wshadow -Wundef -Wvla -Wformat=2"
    " -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wl,--build-id=none"
).split()


def build(directory: Path) -> Path:
    """Compile the probe to `directory`/probe, executable for everybody."""
    program = directory / "probe"
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    subprocess.run(["musl-gcc", *_FLAGS, *sources, "-o", str(program)], check=True, timeout=60)
    program.chmod(0o755)
    return program
