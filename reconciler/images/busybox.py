"""The root image `builtin:busybox`: the distribution's static busybox and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from reconciler.errors import Missing
from reconciler.images.elf import NotElf, interpreter
from reconciler.linux.process import install_command, run

_LIST_SECONDS = 20.0
_BUSYBOX = (Path("/bin/busybox"), Path("/usr/lib/busybox/bin/busybox-static"))
_DIRECTORIES = {
    "bin": 0o755,
    "data": 0o755,
    "dev": 0o755,
    "etc": 0o755,
    "home": 0o755,
    "mnt": 0o755,
    "proc": 0o755,
    "root": 0o700,
    "run": 0o755,
    "sys": 0o755,
    "tmp": 0o1777,
    "usr": 0o755,
    "var": 0o755,
    "var/tmp": 0o1777,
}
_LINKS = {
    "sbin": "bin",
    "usr/bin": "../bin",
    "usr/sbin": "../bin",
    "var/run": "../run",
}
_FILES = {
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/passwd": (
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
    ),
    "etc/profile": "export PATH=/usr/sbin:/usr/bin:/sbin:/bin\n",
    "etc/shells": "/bin/sh\n",
}


def find_busybox() -> Path:
    """Return the host's static busybox, or raise Missing with the command that installs it."""
    hint = install_command("busybox-static")
    for path in _BUSYBOX:
        try:
            if interpreter(path) is None:
                return path
        except FileNotFoundError:
            continue
        except NotElf as error:
            raise Missing(error.brief, hint=hint) from error
    raise Missing("builtin:busybox needs a statically linked busybox", hint=hint)


def make_tree(busybox: Path, tree: Path) -> None:
    """Lay out a root filesystem in `tree`, a new directory. Raises OSError or CommandFailed."""
    tree.mkdir(mode=0o755)
    tree.chmod(0o755)
    for name, mode in _DIRECTORIES.items():
        _directory(tree / name, mode)
    for name, text in _FILES.items():
        _file(tree / name, text.encode(), 0o644)
    _file(tree / "bin/busybox", busybox.read_bytes(), 0o755)
    for name, target in _LINKS.items():
        (tree / name).symlink_to(target)
    for applet in _applets(busybox):
        (tree / "bin" / applet).symlink_to("busybox")


def _applets(busybox: Path) -> list[str]:
    listed = run([busybox, "--list"], timeout_seconds=_LIST_SECONDS).stdout.decode().split()
    return sorted({name for name in listed if name != "busybox" and os.sep not in name})


def _directory(path: Path, mode: int) -> None:
    path.mkdir()
    path.chmod(mode)  # whatever the umask


def _file(path: Path, data: bytes, mode: int) -> None:
    path.write_bytes(data)
    path.chmod(mode)
