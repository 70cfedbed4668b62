"""The guest's kernel: the distribution's own, unpacked below BOX_HOME, or the one of BOX_KERNEL."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.errors import BoxError, Busy, Missing
from reconciler.images.bzimage import is_bzimage, release, vmlinux
from reconciler.images.compression import NotDecompressed
from reconciler.images.modules import needed_modules
from reconciler.images.packages import unpack_kernel
from reconciler.images.progress import Progress
from reconciler.images.scratch import scratch
from reconciler.linux.files import (
    BrokenFile,
    locked,
    read_json,
    sync_directory,
    write_atomic,
    write_json,
)
from reconciler.linux.process import CommandFailed

_MODE = 0o444  # mounted into jails, where another user ID reads them; the directory above is 0700
_CUSTOM = "custom-"
_TOLD_AFTER_SECONDS = 1.0
_FETCH_SECONDS = 600.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]*")


@dataclass(frozen=True)
class Kernel:
    """A bootable kernel: `modules` in load order, `source` says where it came from."""

    release: str
    path: Path
    modules: tuple[Path, ...]
    source: str


def find_kernel(home: Path) -> Kernel:
    """Return the kernel that guests boot: that of BOX_KERNEL, else the newest below `home`.

    Costs a few stats once BOX_KERNEL has been taken in. Raises Missing with what to do when there
    is none.
    """
    given = os.environ.get("BOX_KERNEL")
    if given:
        return _custom_kernel(home, Path(given))
    names = [path.parent.name for path in (home / "kernels").glob("*/meta.json")]
    releases = [name for name in names if not name.startswith(_CUSTOM)]
    if not releases:
        raise Missing(
            "there is no guest kernel yet",
            hint="run `box quickstart`, which fetches one, or set BOX_KERNEL to a kernel image",
        )
    return _load(home / "kernels" / max(releases, key=_version))


def ensure_kernel(home: Path, progress: Progress) -> Kernel:
    """Return the kernel that guests boot, fetched if there is none yet: by one process at a time.

    Raises what `find_kernel` raises of a BOX_KERNEL, and what `fetch_kernel` raises.
    """
    try:
        return find_kernel(home)
    except Missing:
        if os.environ.get("BOX_KERNEL"):
            raise
    with contextlib.ExitStack() as stack:
        lock = home / "kernel.lock"
        try:
            stack.enter_context(locked(lock, timeout_seconds=_TOLD_AFTER_SECONDS))
        except Busy:
            progress("waiting for the kernel that another command fetches")
            stack.enter_context(locked(lock, timeout_seconds=_FETCH_SECONDS))
        with contextlib.suppress(Missing):
            return find_kernel(home)
        return fetch_kernel(home, progress)


def fetch_kernel(home: Path, progress: Progress) -> Kernel:
    """Get the distribution's kernel for virtual machines and keep it below `home`.

    Needs no root and installs nothing. Raises Missing or CommandFailed; `home` is then as before.
    """
    with scratch(home) as directory:
        source = unpack_kernel(
            Path("/etc/os-release").read_text(), os.uname().machine, directory, progress
        )
        image = _only_image(directory)
        progress("unpacking the kernel")
        return _take_in(home, image, lambda name: _modules_below(directory, name), source, progress)


def _custom_kernel(home: Path, image: Path) -> Kernel:
    modules = os.environ.get("BOX_KERNEL_MODULES")
    name = _custom_name(image, modules)
    with contextlib.suppress(FileNotFoundError):
        return _load(home / "kernels" / name)

    def find_modules(release: str) -> Path | None:
        if modules:
            return Path(modules)
        near = [parent / "lib/modules" / release for parent in list(image.absolute().parents)[:2]]
        return next((directory for directory in near if directory.is_dir()), None)

    return _take_in(home, image, find_modules, f"BOX_KERNEL={image}", _silent, name)


def _custom_name(image: Path, modules: str | None) -> str:
    try:
        facts = image.stat()
        parts = [str(image.absolute()), facts.st_size, facts.st_mtime_ns, facts.st_ino]
        if modules:
            parts += [modules, Path(modules).stat().st_mtime_ns]
    except OSError as error:
        raise Missing(
            f"{error.filename}: {error.strerror}",
            hint="BOX_KERNEL names a kernel image, BOX_KERNEL_MODULES a directory of modules",
        ) from error
    return _CUSTOM + hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _take_in(
    home: Path,
    image: Path,
    find_modules: Callable[[str], Path | None],
    source: str,
    progress: Progress,
    name: str | None = None,
) -> Kernel:
    """Copy an image and the modules it needs to kernels/<name>, which appears whole."""
    file_name, data = _bootable(_read(image), progress)
    release_name = release(data)
    if release_name is None or not _NAME.fullmatch(release_name):
        raise BoxError(f"{image} is not a Linux kernel image that box can boot")
    directory = find_modules(release_name)
    modules = needed_modules(directory, release_name) if directory else ()
    kernels = home / "kernels"
    kernels.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = kernels / (name or release_name)
    with scratch(home) as temporary:
        made = temporary / "kernel"
        made.mkdir(mode=0o700)
        (made / "modules").mkdir(mode=0o700)
        write_atomic(made / file_name, data, _MODE)
        for module in modules:
            write_atomic(made / "modules" / f"{module.name}.ko", module.data, _MODE)
        order = [module.name for module in modules]
        facts = {"image": file_name, "order": order, "release": release_name, "source": source}
        write_json(made / "meta.json", facts)
        _put(made, target)
    return _load(target)


def _read(image: Path) -> bytes:
    try:
        return image.read_bytes()
    except OSError as error:
        raise Missing(
            f"{image}: {error.strerror}", hint="copy it to where you can read it"
        ) from error


def _put(made: Path, target: Path) -> None:
    """Move a whole kernel to its place; one of the same release but another origin gives way."""
    if target.exists() and _meta(target) != _meta(made):
        # Running guests keep the files they have mounted.
        target.rename(made.with_name("old"))
    try:
        made.rename(target)
    except OSError as error:
        # Another box was faster: its copy is as whole as ours.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    sync_directory(target.parent)


def _meta(directory: Path) -> dict[str, Any] | None:
    with contextlib.suppress(FileNotFoundError, BrokenFile):
        return read_json(directory / "meta.json")
    return None


def _bootable(image: bytes, progress: Progress) -> tuple[str, bytes]:
    """Return the file name and bytes to boot: unpacked where possible, which boots faster."""
    if not is_bzimage(image):
        return "vmlinux", image
    try:
        return "vmlinux", vmlinux(image)
    except (NotDecompressed, Missing, CommandFailed) as error:
        progress(f"the kernel stays compressed and will boot more slowly: {error}")
        return "bzImage", image


def _only_image(directory: Path) -> Path:
    images = [path for path in directory.rglob("vmlinuz*") if path.is_file()]
    if len(images) != 1:
        raise BoxError(f"the kernel package holds {len(images)} kernel images instead of one")
    return images[0]


def _modules_below(directory: Path, release: str) -> Path | None:
    found = [directory / "lib/modules" / release, directory / "usr/lib/modules" / release]
    return next((path for path in found if path.is_dir()), None)


def _load(directory: Path) -> Kernel:
    try:
        facts = read_json(directory / "meta.json")
        modules = tuple(directory / "modules" / f"{name}.ko" for name in facts["order"])
        return Kernel(facts["release"], directory / facts["image"], modules, facts["source"])
    except (BrokenFile, KeyError, TypeError) as error:
        raise BrokenFile(
            f"The kernel in {directory} cannot be told.",
            details=str(error),
            hint=f"take the folder away, then `box quickstart` fetches one: {directory}",
        ) from error


def _version(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release))


def _silent(message: str) -> None:
    """Take a kernel in without a word: nobody asked for a download."""
