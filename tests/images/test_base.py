from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.errors import Missing, Refused
from reconciler.images.base import Kind, identity, resolve_base


@pytest.mark.parametrize(
    ("base", "kind", "location"),
    [
        ("builtin:busybox", Kind.BUSYBOX, ""),
        ("oci-archive:/a b/x,y.tar", Kind.ARCHIVE, "/a b/x,y.tar"),
        ("localhost/name:tag", Kind.PODMAN, "localhost/name:tag"),
        ("docker.io/library/debian@sha256:" + "0" * 64, Kind.PODMAN, None),
    ],
)
def test_a_base_is_one_of_three_kinds(base: str, kind: Kind, location: str | None) -> None:
    reference = resolve_base(base)
    assert reference.kind is kind
    assert reference.location == (base if location is None else location)


@pytest.mark.parametrize(
    "base",
    [
        "",
        "builtin:alpine",
        "oci-archive:relative.tar",
        "oci-archive:",
        "oci-archive:/a\0b",
        "--authfile=/etc/shadow",
        "-v",
        "name with spaces",
        "name\nnewline",
        "$(id)",
        "x" * 600,
        "ünïcode",
    ],
)
def test_what_is_no_base_is_refused_before_anything_is_started(base: str) -> None:
    with pytest.raises(Refused):
        resolve_base(base)


def test_the_identity_of_a_file_changes_with_the_file(tmp_path: Path) -> None:
    reference = resolve_base(f"oci-archive:{tmp_path}/x.tar")
    with pytest.raises(Missing, match="No such file"):
        identity(reference)
    (tmp_path / "x.tar").write_bytes(b"1")
    first = identity(reference)
    assert identity(reference) == first
    (tmp_path / "x.tar").write_bytes(b"12")
    assert identity(reference) != first


def test_the_identity_of_busybox_is_a_file_of_the_hosts() -> None:
    assert identity(resolve_base("builtin:busybox")).startswith("/")
