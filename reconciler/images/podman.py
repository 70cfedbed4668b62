"""Images out of the user's own podman storage."""

from __future__ import annotations

import re
from pathlib import Path

from reconciler.errors import Missing
from reconciler.linux.process import (
    CommandFailed,
    Completed,
    failure,
    inherited,
    require_program,
    run,
)

_QUERY_SECONDS = 60.0
_SAVE_SECONDS = 3600.0
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
    exists = _podman(["image", "exists", reference], _QUERY_SECONDS)
    if exists.returncode == 1:
        raise Missing(f"podman has no image {reference}", hint=f"podman pull {reference}")
    raise _failed(argv, result)


def save(reference: str, archive: Path) -> None:
    """Write an image of podman's storage to `archive`, a new OCI archive. Raises CommandFailed."""
    # Layers that are not compressed save compressing them here and decompressing them twice.
    argv = ["save", "--quiet", "--uncompressed", "--format", "oci-archive", "--output"]
    result = _podman([*argv, str(archive), reference], _SAVE_SECONDS)
    if result.returncode != 0:
        raise _failed([*argv, str(archive), reference], result)


def _podman(arguments: list[str], seconds: float) -> Completed:
    argv: list[str | Path] = [require_program("podman", "podman"), *arguments]
    return run(argv, timeout_seconds=seconds, env=inherited(*_ENVIRONMENT), check=False)


def _failed(arguments: list[str], result: Completed) -> CommandFailed:
    return failure(["podman", *arguments], f"failed with {result.returncode}", result.stderr)
