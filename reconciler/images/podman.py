"""Images in the user's own podman storage: looked up, brought in, built and taken out."""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path

from reconciler.errors import Missing
from reconciler.images.config import ImageConfig, parse_oci_config
from reconciler.linux.process import (
    CommandFailed,
    Completed,
    failure,
    inherited,
    require_program,
    run,
)

_QUERY_SECONDS = 60.0
_COPY_SECONDS = 3600.0
# Nothing of ours that podman would act on or hand to a build: no CONTAINER_HOST, no proxies.
_ENVIRONMENT = (
    "HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
)
_ID = re.compile(r"[0-9a-f]{64}")


def image_id(reference: str) -> str:
    """Return the ID of an image in podman's storage; nothing is pulled.

    Raises Missing when there is no podman or no such image, and CommandFailed.
    """
    argv = ["image", "inspect", "--format", "{{.Id}}", reference]
    result = _podman(argv, _QUERY_SECONDS)
    found = result.stdout.decode(errors="replace").strip()
    if result.returncode == 0 and _ID.fullmatch(found):
        return found
    if not image_exists(reference):
        raise Missing(f"podman has no image {reference}", hint=f"podman pull {reference}")
    raise _failed(argv, result)


def image_exists(reference: str) -> bool:
    """Whether podman's storage has this image. Raises Missing without podman, CommandFailed."""
    argv = ["image", "exists", reference]
    result = _podman(argv, _QUERY_SECONDS)
    if result.returncode not in (0, 1):
        raise _failed(argv, result)
    return result.returncode == 0


def image_config(reference: str) -> ImageConfig:
    """Return how commands run in an image of podman's. Raises BadConfig and CommandFailed."""
    argv = ["image", "inspect", "--format", "{{json .Config}}", reference]
    result = _checked(argv, _QUERY_SECONDS)
    return parse_oci_config(json.loads(result.stdout))


def load(archive: Path, identifier: str, name: str) -> None:
    """Bring in the one image `identifier` of an OCI archive that gives it no name, as `name`.

    An archive with names of its own would take those from the user's images.
    """
    _checked(["load", "--quiet", "--input", str(archive)], _COPY_SECONDS)
    _checked(["tag", identifier, name], _QUERY_SECONDS)


def copy_image(identifier: str, name: str) -> None:
    """Make `name` an image of the same files, without the triggers that `identifier` may have.

    A build runs the ONBUILD instructions of its base, with --mount and all, and podman does not
    show them. The configuration of OCI images has no place for them.
    """
    container = f"box-{secrets.token_hex(8)}"
    create = ["create", "--pull=never", "--network=none", "--image-volume=ignore"]
    try:
        # Never started: it is there to be committed.
        _checked([*create, "--name", container, identifier, "true"], _COPY_SECONDS)
        _checked(["commit", "--quiet", "--format=oci", container, name], _COPY_SECONDS)
    finally:
        _podman(["rm", "--force", "--volumes", container], _QUERY_SECONDS)


def save(reference: str, archive: Path) -> None:
    """Write an image of podman's storage to `archive`, a new OCI archive. Raises CommandFailed."""
    # Layers that are not compressed save compressing them here and decompressing them twice.
    argv = ["save", "--quiet", "--uncompressed", "--format", "oci-archive", "--output"]
    _checked([*argv, str(archive), reference], _COPY_SECONDS)


def command(*arguments: str | Path) -> list[str | Path]:
    """Return podman's command line. Raises Missing when there is no podman."""
    return [require_program("podman", "podman"), *arguments]


def environment() -> dict[str, str]:
    """Return what podman is told of the caller's environment: where its own files are."""
    return inherited(*_ENVIRONMENT)


def _checked(arguments: list[str], seconds: float) -> Completed:
    result = _podman(arguments, seconds)
    if result.returncode != 0:
        raise _failed(arguments, result)
    return result


def _podman(arguments: list[str], seconds: float) -> Completed:
    return run(command(*arguments), timeout_seconds=seconds, env=environment(), check=False)


def _failed(arguments: list[str], result: Completed) -> CommandFailed:
    return failure(["podman", *arguments], f"failed with {result.returncode}", result.stderr)
