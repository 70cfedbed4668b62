"""The initial RAM disk: the agent as /init, and the modules it loads."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from reconciler.images.cpio import Entry, archive, character_device, directory, regular
from reconciler.images.fingerprint import file_digests
from reconciler.images.kernel import Kernel
from reconciler.linux.files import write_atomic

# Goes into the name, so that another layout does not find the old file: change it with `_entries`.
_LAYOUT = 1
_MODE = 0o444  # mounted into jails, where another user ID reads it; the directory above is 0700


def build_initrd(home: Path, kernel: Kernel, agent: Path) -> Path:
    """Return the initrd of `kernel` and `agent`, made at initrd/<digest>.cpio unless it is there.

    It is not compressed: unpacking under emulation costs more than reading. A second call stats
    the parts and reads nothing but the digest cache. Raises OSError.
    """
    path = home / "initrd" / f"{_digest(home, kernel, agent)}.cpio"
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(path, archive(_entries(kernel, agent)), _MODE)
    return path


def _digest(home: Path, kernel: Kernel, agent: Path) -> str:
    digests = file_digests(home, (agent, *kernel.modules))
    modules = [(module.name, digests[module]) for module in kernel.modules]
    parts = {"agent": digests[agent], "layout": _LAYOUT, "modules": modules}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _entries(kernel: Kernel, agent: Path) -> list[Entry]:
    order = "".join(f"{module.name}\n" for module in kernel.modules)
    return [
        *(directory(name) for name in ("dev", "modules", "newroot", "proc", "sys")),
        character_device("dev/console", 5, 1, 0o600),
        regular("init", agent.read_bytes(), 0o755),
        regular("modules/order", order.encode(), 0o444),
        *(regular(f"modules/{m.name}", m.read_bytes(), 0o444) for m in kernel.modules),
    ]
