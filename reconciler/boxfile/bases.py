"""What a sandbox's root image is made from: the grammar of the `base` field."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

BUILTINS = ("busybox",)
MAX_LENGTH = 512

# No control character, no comma or colon (both split options of other programs), no leading dash.
_PATH = "/?[A-Za-z0-9._][A-Za-z0-9._+@=~ -]*(/[A-Za-z0-9._][A-Za-z0-9._+@=~ -]*)*"
# The reference grammar of the distribution project (distribution/reference/regexp.go), with only
# sha256 digests.
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_REGISTRY = rf"({_LABEL}(\.{_LABEL})+(:[0-9]{{1,5}})?|{_LABEL}:[0-9]{{1,5}}|localhost)/"
_PART = "[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*"
_IMAGE = (
    rf"({_REGISTRY})?{_PART}(/{_PART})*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
# `oci:thing` is an image called oci to the grammar above and a folder to podman and skopeo
# (containers-transports(5)), so these are no image names here.
TRANSPORTS = frozenset(
    {
        "atomic",
        "builtin",
        "containers-storage",
        "dir",
        "docker",
        "docker-archive",
        "docker-daemon",
        "oci",
        "oci-archive",
        "ostree",
        "sif",
        "tarball",
    }
)
BASE_PATTERN = (
    rf"builtin:({'|'.join(BUILTINS)})|oci-archive:(?!(.*/)?\.\.(/|$)){_PATH}"
    rf"|(?!({'|'.join(sorted(TRANSPORTS))}):){_IMAGE}"
)
"""All that `parse_base` takes, but for its length."""


@dataclass(frozen=True, slots=True)
class Base:
    """A parsed `base`: for `builtin` its name, for `oci-archive` a path, else an image reference.

    A relative path counts from the Boxfile's folder.
    """

    kind: Literal["builtin", "oci-archive", "image"]
    reference: str


def parse_base(text: str) -> Base:
    """Split a `base`; ValueError says which rule it breaks."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"is longer than {MAX_LENGTH} characters")
    transport, colon, rest = text.partition(":")
    if colon and transport == "builtin":
        return _builtin(rest)
    if colon and transport == "oci-archive":
        return _archive(rest)
    if colon and transport in TRANSPORTS:
        raise ValueError(
            f"cannot use {transport}: here; a base is builtin:busybox, oci-archive:PATH or an "
            "image reference"
        )
    if not re.fullmatch(_IMAGE, text):
        raise ValueError(
            "is not an image reference ([registry/]name[:tag][@sha256:digest], name in lower "
            "case), builtin:busybox or oci-archive:PATH"
        )
    return Base("image", text)


def _builtin(name: str) -> Base:
    if name not in BUILTINS:
        raise ValueError("names a builtin that does not exist; known: " + ", ".join(BUILTINS))
    return Base("builtin", name)


def _archive(path: str) -> Base:
    if not re.fullmatch(_PATH, path) or ".." in path.split("/"):
        raise ValueError(
            "needs a path after oci-archive: made of letters, digits, spaces and ._+@=~-/, with "
            "no part that starts with - or is .."
        )
    return Base("oci-archive", path)
