from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.boxfile.packages import check_package, manager_of, package_fault
from reconciler.boxfile.recipe import PackageManager

GOOD: dict[PackageManager, list[str]] = {
    "apt": [
        *("git", "g++", "libstdc++6", "0ad", "libc6:arm64", "git=1:2.39.5-0+deb12u2"),
        *("python3.11-venv", "libc6:amd64=2.36-9+deb12u10", "ab=1~rc1", "7zip"),
    ],
    "apk": [
        *("git", "g++", "py3-pip", "git=2.45.2-r0", "git>=2", "git<3", "git~2.45", "git>2"),
        *("Xvfb", "font_noto", "a.b", "7zip"),
    ],
    "dnf": [
        *("git", "gcc-c++", "NetworkManager", "git-2.45.2-1.fc40.x86_64", "git-1:2.45-1.fc40"),
        *("python3.13", "glibc.i686", "a-1~rc1", "a-1^2", "7zip"),
    ],
}
# What no manager may get: an option, a command, a place to fetch from, a pattern, a second word.
NOTHING = [
    *("", "-", "-y", "--allow-unauthenticated", "-oAPT::Get::AllowUnauthenticated=true"),
    *("foo; curl x|sh", "$(id)", "`id`", "a|b", "a&b", "a>b c", "a'b", 'a"b', "a\\b", "a b"),
    *("git+ssh://-oProxyCommand=id/x", "https://example.org/x.deb", "foo @ file:///etc"),
    *("./x.deb", "../x", "/etc/x", "a/b", "x.rpm", "x-1.rpm", "git@edge", "@group", "!git", ".v"),
    *("a*", "a?", "[a]", "a,b", "a(b)", "a{b}", "a#b", "a%b", "ä", "a\u0660", "~a", "^a", "+a"),
    *("a\n", "a\nRUN id", "a\r", "a\t", "a\0", "a\x85", "a\u2028", " a", "a ", "a" * 257),
]
# Good for one manager, not for others.
WRONG: dict[PackageManager, list[str]] = {
    "apt": ["Git", "git-", "g", "git<2", "git>=2", "lib_x", "git:", "git=", "a:b:c=1", "git~2"],
    "apk": ["git:arm64", "git=1:2", "git-1:2", "git<", "git=", "git<>2", "git==2", "a~"],
    "dnf": ["git=2", "git<3", "git>=2"],
}


@pytest.mark.parametrize("manager", GOOD)
def test_names_and_versions_in_the_managers_own_way(manager: PackageManager) -> None:
    for name in GOOD[manager]:
        assert check_package(name) == name
        assert package_fault(name, manager) is None, name


@pytest.mark.parametrize("name", NOTHING)
def test_what_no_manager_means_by_a_package(name: str) -> None:
    with pytest.raises(ValueError, match=r"no package name|longer"):
        check_package(name)


@pytest.mark.parametrize("manager", WRONG)
def test_each_manager_has_its_own_grammar(manager: PackageManager) -> None:
    for name in WRONG[manager]:
        fault = package_fault(name, manager)
        assert fault is not None, name
        assert manager in fault


@given(st.text("ab0-+.:=<>~^_@/ \n;$", max_size=12), st.sampled_from(["apk", "apt", "dnf"]))
def test_nothing_accepted_is_an_option_or_a_second_word(name: str, manager: PackageManager) -> None:
    try:
        check_package(name)
    except ValueError:
        return
    if package_fault(name, manager) is None:
        assert name[0].isalnum()
        assert not set(name) & set("@/ \n;$")


@pytest.mark.parametrize(
    ("base", "manager"),
    [
        ("alpine", "apk"),
        ("docker.io/library/alpine:3.20", "apk"),
        ("alpine@sha256:" + "0" * 64, "apk"),
        ("cgr.dev/chainguard/wolfi-base", "apk"),
        ("debian:12-slim", "apt"),
        ("ubuntu", "apt"),
        ("python:3.13", "apt"),
        ("python:3.13-alpine", "apk"),
        ("python:3.13-alpine3.20", "apk"),
        ("python:alpine", "apk"),
        ("golang:1.24-alpine3.21", "apk"),
        ("node:22-bookworm-slim", "apt"),
        ("quay.io/fedora/fedora:42", "dnf"),
        ("rockylinux:9", "dnf"),
        ("localhost:5000/debian", "apt"),
        ("localhost/web", None),
        ("web:debian", None),
        ("debian/web", None),
        ("mydebian", None),
        ("python:3-notalpine", "apt"),
        ("builtin:busybox", None),
        ("oci-archive:alpine.tar", None),
    ],
)
def test_the_manager_of_a_base(base: str, manager: PackageManager | None) -> None:
    assert manager_of(base) == manager
