"""What the probe aims at: a process, sockets and files of whoever launches it."""

from __future__ import annotations

import contextlib
import secrets
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SECRET = "not for a VMM"


@dataclass(frozen=True)
class Targets:
    """Their names, as `Talk.aim` takes them; what only one place has is added there."""

    words: dict[str, object]
    victim: int


@contextlib.contextmanager
def made(folder: Path) -> Iterator[Targets]:
    """Make them, the files in `folder`; all are gone afterwards."""
    secret = folder / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o644)
    name = f"box-probe-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        for address in (f"\0{name}", str(folder / "socket")):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(address)
            listener.listen(8)
        for path in (secret, folder / "socket"):
            stack.callback(path.unlink)
        # Of both kinds: an IPv4 address is one of IPv6 too here.
        calls = stack.enter_context(
            socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        )
        victim = stack.enter_context(
            subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        )
        stack.callback(victim.kill)
        words: dict[str, object] = {
            "victim": victim.pid,
            "secret": secret,
            "abstract": name,
            "socket": folder / "socket",
            "port": calls.getsockname()[1],
            "address": own_address(),
            "block": block_device(),
        }
        yield Targets(words, victim.pid)


def own_address() -> str:
    """An IPv4 address of this host's that is no loopback, "" when it has none."""
    said = subprocess.run(
        ["ip", "-4", "-o", "address", "show", "scope", "global"],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    ).stdout.split()
    return said[said.index("inet") + 1].split("/")[0] if "inet" in said else ""


def block_device() -> str:
    """A disk of this host, "" when it has none."""
    disks = sorted(path.name for path in Path("/sys/block").iterdir())
    nodes = [f"/dev/{name}" for name in disks if not name.startswith(("ram", "loop", "zram"))]
    return next((node for node in nodes if Path(node).exists()), "")
