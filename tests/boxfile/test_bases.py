from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.boxfile.bases import TRANSPORTS, Base, parse_base


@pytest.mark.parametrize(
    ("text", "base"),
    [
        ("builtin:busybox", Base("builtin", "busybox")),
        ("oci-archive:/srv/a b.tar", Base("oci-archive", "/srv/a b.tar")),
        ("oci-archive:a..b/x.tar", Base("oci-archive", "a..b/x.tar")),
        ("alpine", Base("image", "alpine")),
        ("alpine:3.20", Base("image", "alpine:3.20")),
        ("ghcr.io/a/b__c/d-e.f:v1", Base("image", "ghcr.io/a/b__c/d-e.f:v1")),
        ("localhost/web", Base("image", "localhost/web")),
        ("build:5000/web", Base("image", "build:5000/web")),
        ("dir/web", Base("image", "dir/web")),
    ],
)
def test_what_a_base_may_be(text: str, base: Base) -> None:
    assert parse_base(text) == base


@pytest.mark.parametrize("transport", sorted(TRANSPORTS - {"builtin", "oci-archive"}))
@pytest.mark.parametrize("rest", ["web", "/etc", "//alpine", "", "5000/web"])
def test_other_transports_are_refused(transport: str, rest: str) -> None:
    with pytest.raises(ValueError, match=f"cannot use {transport}:"):
        parse_base(f"{transport}:{rest}")


@pytest.mark.parametrize(
    "text",
    [
        "-v",
        "--privileged",
        "a b",
        "a\n",
        "a,b",
        "a@b",
        "a@sha512:" + "0" * 128,
        "a:",
        "a:-x",
        "a//b",
        "/a",
        "a/",
        "a.",
        "https://x/y",
        "a:b:c",
        "$(id)",
        "a;b",
        "ä",
        "oci-archive:/a/../b",
        "oci-archive:a:b",
        "oci-archive:a\n",
        "oci-archive:a/-b",
        "oci-archive:$HOME/a",
        "builtin:",
        "builtin:busybox\n",
        "a" * 513,
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"image|path|builtin|longer"):
        parse_base(text)


@given(st.text(max_size=60))
def test_nothing_accepted_can_be_an_option_or_a_second_word(text: str) -> None:
    try:
        base = parse_base(text)
    except ValueError:
        return
    assert not base.reference.startswith("-")
    assert not set(base.reference) & set("\n\r\t\0,;|&$`'\"\\<>()*?[]{}!#")
