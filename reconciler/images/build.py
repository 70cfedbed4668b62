"""A recipe, built by the user's podman into an image of its storage.

The steps run on this host's kernel, in a container with podman's namespaces, its seccomp filter and
nine capabilities. An image that is there already, for the same recipe on the same base, is not
built again. What builds leave in the storage, named localhost/box/*, is only there to save time:

    podman rmi --force $(podman images --quiet --filter reference='localhost/box/*')
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from reconciler.boxfile.problems import printable
from reconciler.codes import Code
from reconciler.errors import BoxError, Refused
from reconciler.images import busybox, flat, podman, podman_build
from reconciler.images.base import BaseRef, Kind, resolve_base
from reconciler.images.config import ImageConfig
from reconciler.images.containerfile import LOCAL_BASE, BuildContext, build_context, needs_network
from reconciler.images.layers import merge
from reconciler.images.oci import open_archive
from reconciler.images.scratch import scratch

if TYPE_CHECKING:
    from reconciler.boxfile.recipe import Recipe
    from reconciler.images.progress import Progress

_BUILT = "localhost/box/built"
_DETAILS_LINES = 20
_DETAILS_CHARACTERS = 500
_QUIET_SECONDS = 5.0
_SHOWN_CHARACTERS = 200
# What podman itself prints about the steps; a step that prints it too deceives nobody else.
_STEP = re.compile(r"STEP ([0-9]{1,6})/[0-9]+: ")
_OWN = re.compile(r"(--> |COMMIT |Successfully tagged |[0-9a-f]{64}$)")


class BuildFailed(BoxError):
    """A step of a Boxfile did not succeed; `details` is the end of what it printed."""

    code = Code.BUILD_FAILED


@dataclass(frozen=True)
class PodmanImage:
    """An image in podman's storage, and how commands run in it: as in the recipe's base."""

    reference: str
    config: ImageConfig


def build(home: Path, recipe: Recipe, progress: Progress) -> PodmanImage:
    """Return the image of a recipe, building it unless podman has it for the same base.

    Raises Missing (no podman, no such base), Refused, BuildFailed and CommandFailed. Interrupted,
    it leaves no process, no container and no file; steps that were finished may be kept by podman
    and need not be run again.
    """
    with scratch(home) as directory:
        base = _bring_base(resolve_base(recipe.base), directory, progress)
        _check_directory(base.config.working_dir)
        context = build_context(recipe, base.config.user)
        key = hashlib.sha256(f"{context.digest} {base.reference}".encode()).hexdigest()
        name = f"{_BUILT}:{key}"
        if not podman.image_exists(name):
            _lay_out(context, directory)
            network = needs_network(recipe)
            argv = podman_build.arguments(directory, base.reference, name, network=network)
            _run(argv, context, directory, progress)
    return PodmanImage(name, base.config)


def _check_directory(working_dir: str) -> None:
    """See that steps are not begun in a directory that is the host's kernel's, not the base's.

    /proc/self/fd/N as a working directory was the way out of containers of CVE-2024-21626. Links of
    the base to there are the OCI runtime's to refuse: `box doctor` knows since when it does.
    """
    path = posixpath.normpath(f"/{working_dir.lstrip('/')}")
    if path.split("/")[1] in ("proc", "sys", "dev"):
        raise Refused(
            f"The base's working directory {working_dir!a} is no directory of the base.",
            details="Build steps would run there, on this host's kernel.",
            hint="use another base, or this one without packages, run and blueprint",
        )


def _bring_base(reference: BaseRef, directory: Path, progress: Progress) -> PodmanImage:
    """Make the base an image that podman can build on, named after its contents."""
    match reference.kind:
        case Kind.PODMAN:
            identifier = podman.image_id(reference.location)
            name = f"{LOCAL_BASE}:{identifier}"
            if not podman.image_exists(name):
                progress(f"preparing {reference.location} for builds")
                podman.copy_image(identifier, name)
            return PodmanImage(name, podman.image_config(identifier))
        case Kind.BUSYBOX:
            tree = directory / "tree"
            busybox.make_tree(busybox.find_busybox(), tree)
            return _load(lambda stream: flat.write_tree(tree, stream), ImageConfig(), directory)
        case Kind.ARCHIVE:
            progress(f"bringing {reference.location} into podman's storage")
            with open_archive(Path(reference.location)) as archive:
                return _load(merge(archive.layers).write, archive.config, directory)


def _load(write: Callable[[BinaryIO], None], config: ImageConfig, directory: Path) -> PodmanImage:
    archive = directory / "base.tar"
    identifier = flat.write_archive(write, config, archive)
    name = f"{LOCAL_BASE}:{identifier}"
    if not podman.image_exists(name):
        podman.load(archive, identifier, name)
    archive.unlink()
    return PodmanImage(name, config)


def _lay_out(context: BuildContext, directory: Path) -> None:
    (directory / "Containerfile").write_bytes(context.containerfile)
    (directory / "temporary").mkdir(mode=0o700)
    root = directory / "context"
    root.mkdir(mode=0o700)
    for name, content, mode in context.files:
        path = root / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)


def _run(argv: list[str], context: BuildContext, directory: Path, progress: Progress) -> None:
    watch = _Watch(context.titles, progress)
    status = podman_build.build(argv, directory / "temporary", watch.tell)
    if status != 0:
        raise BuildFailed(
            f"the image cannot be built: {watch.title} failed",
            details="\n".join(watch.last),
            hint="correct the step and build again: those before it are not repeated",
        )


class _Watch:
    """What is known of a build from its output, which may be any bytes."""

    def __init__(self, titles: tuple[str, ...], progress: Progress) -> None:
        self.title = "podman build"
        self.last: deque[str] = deque(maxlen=_DETAILS_LINES)
        self._titles = titles
        self._progress = progress
        self._began = self._shown_at = time.monotonic()

    def tell(self, lines: list[str]) -> None:
        """Take lines that came together; show each step that begins and the last line after it."""
        shown = ""
        for line in lines:
            if step := _STEP.match(line):
                shown = self._begin(int(step[1]))
            elif line.strip() and not _OWN.match(line):
                self.last.append(_printable(line, _DETAILS_CHARACTERS))
                shown = _printable(line.strip(), _SHOWN_CHARACTERS)
        if shown:
            self._show(shown)
        elif time.monotonic() > self._shown_at + _QUIET_SECONDS:
            self._show(f"{self.title} ({time.monotonic() - self._began:.0f} s)")

    def _begin(self, number: int) -> str:
        self._began = time.monotonic()
        self.last.clear()
        title = self._titles[number - 1] if 0 < number <= len(self._titles) else ""
        if title:
            self.title = _printable(title, _SHOWN_CHARACTERS)
            self._show(self.title)
        return ""

    def _show(self, text: str) -> None:
        self._shown_at = time.monotonic()
        self._progress(text)


def _printable(text: str, characters: int) -> str:
    return printable(text[:characters])[:characters]
