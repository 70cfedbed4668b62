"""From a Boxfile's recipe to a root image: its base, or what is built on it, laid out once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.boxfile.recipe import Recipe
from reconciler.errors import BoxError
from reconciler.images import busybox, podman
from reconciler.images.base import BaseRef, Kind, identity, resolve_base
from reconciler.images.config import ImageConfig
from reconciler.images.progress import Progress
from reconciler.images.scratch import clean, scratch
from reconciler.images.store import Image, find_image, keep_image, remember

if TYPE_CHECKING:
    from reconciler.images.filesystem import FilesystemImage

# What only a build needs is imported there: every `run` asks for the image that is built already.

# Part of every identity: with a change to how images are laid out, bases are built again.
_LAYOUT = 1


def built_image(home: Path, source: Recipe | str) -> Image | None:
    """Return the image that a recipe, or a bare base, was built into; None if it is another now.

    Stats only. An image of podman's stays what it was at the last build, so that starting a
    sandbox needs no podman.
    """
    recipe = _recipe(source)
    reference = resolve_base(recipe.base)
    pinned = reference.kind is Kind.PODMAN
    return find_image(home, _name(recipe), None if pinned else _identity(reference))


def build_image(home: Path, source: Recipe | str, progress: Progress) -> Image:
    """Return the root image of a recipe, building it unless it is there for the same base.

    Killed at any point, on a full disk too, it leaves nothing half-made. Raises Missing (no file,
    no podman, no such image, no program), Refused for a hostile archive, BuildFailed for a step
    that did not succeed, CommandFailed, OSError.
    """
    recipe = _recipe(source)
    reference = resolve_base(recipe.base)
    name, identity_now = _name(recipe), _identity(reference)
    image = find_image(home, name, identity_now)
    if image is not None:
        # Whoever built it may have been killed right after.
        clean(home)
        return image
    progress(f"building the root image of {recipe.base}")
    with scratch(home) as directory:
        output = directory / "image"
        output.mkdir(mode=0o700)
        if recipe.plain:
            made, config = _make(reference, directory, output, progress)
        else:
            made, config = _make_built(home, recipe, directory, output, progress)
        remember(home, name, identity_now, keep_image(made, config, home))
    image = find_image(home, name, identity_now)
    if image is None:
        raise BoxError(f"the image of {recipe.base} was removed while it was built")
    return image


def _recipe(source: Recipe | str) -> Recipe:
    return Recipe(source) if isinstance(source, str) else source


def _name(recipe: Recipe) -> str:
    """Name what is built; a base holds no space before its colon, so the two cannot meet."""
    if recipe.plain:
        return recipe.base
    from reconciler.images.containerfile import build_context

    return f"{build_context(recipe).digest} {recipe.base}"


def _identity(reference: BaseRef) -> str:
    return f"{_LAYOUT} {identity(reference)}"


def _make_built(
    home: Path, recipe: Recipe, directory: Path, output: Path, progress: Progress
) -> tuple[FilesystemImage, ImageConfig]:
    from reconciler.images.build import build

    built = build(home, recipe, progress)
    archive = directory / "saved.tar"
    podman.save(built.reference, archive)
    made, _ = _from_archive(archive, output, progress)
    return made, built.config


def _make(
    reference: BaseRef, directory: Path, output: Path, progress: Progress
) -> tuple[FilesystemImage, ImageConfig]:
    match reference.kind:
        case Kind.BUSYBOX:
            from reconciler.images.filesystem import make_from_tree

            tree = directory / "tree"
            busybox.make_tree(busybox.find_busybox(), tree)
            return make_from_tree(tree, output), ImageConfig()
        case Kind.ARCHIVE:
            return _from_archive(Path(reference.location), output, progress)
        case Kind.PODMAN:
            archive = directory / "saved.tar"
            podman.save(reference.location, archive)
            return _from_archive(archive, output, progress)


def _from_archive(
    path: Path, output: Path, progress: Progress
) -> tuple[FilesystemImage, ImageConfig]:
    from reconciler.images.filesystem import make_from_tar
    from reconciler.images.layers import merge
    from reconciler.images.oci import open_archive

    with open_archive(path) as archive:
        merged = merge(archive.layers)
        for note in merged.notes:
            progress(note)
        return make_from_tar(merged.write, merged.newest_mtime(), output), archive.config
