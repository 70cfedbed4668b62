from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.boxfile import paths

GUEST_GOOD = ["/work", "/a/b/c", "/database", "/devices", "/sysroot", "/procfs", "/srv/data"]
GUEST_GOOD += ["/..a", "/a..b", "/.data", "/a b", "/a,b:c", "/é", "/-x", "/Data", "/home/dev"]
GUEST_BAD = ["", "work", "/", "//", "/work/", "//work", "/a//b", "/./a", "/a/.", "/../a", "/a/.."]
GUEST_BAD += ["/data", "/data/", "/data/x", "//data", "/./data", "/data/.", "/x/../data"]
GUEST_BAD += ["/dev", "/dev/shm", "/proc", "/proc/self/root", "/sys", "/sys/fs/cgroup", "~/x"]
GUEST_BAD += ["/a\n", "/a\0b", "/a\x85", "/a\u2028", "/a\x7f", "/" + "a" * 4095, "/" + "é" * 2048]

HOST_GOOD = [
    "/",
    "~",
    "~/",
    "~/x",
    "/.",
    "/x/",
    "//x",
    "/srv/a b",
    "/a..b",
    "/...",
    "/..a/x",
    "/-x",
]
HOST_GOOD += ["/a,b:c", "/é", "/a~", "/~root", "~/~", "/proc/self/root"]
HOST_BAD = ["", "..", "../x", "a/..", "a/../b", "/..", "/../etc", "~root", "~root/x", "~~", "-x"]
HOST_BAD += [
    ".",
    "./x",
    "x",
    "x/",
    "a..b",
    "./-x",
    "~/..",
    "~/../x",
    "/a/..",
    "--bind",
    "a\n",
    "a\0b",
    "a\tb",
    "a\x85",
    "a\u2029",
    "/" + "a" * 4095,
]

SECCOMP_GOOD = ["x.json", "./x.json", "a/b.json", "/etc/box/x.json", "a+b@c=d~e.json", "..x.json"]
SECCOMP_GOOD += ["a..b/x.json", "...json", "x.json.json", "a/./x.json", "././x.json"]
SECCOMP_BAD = ["", "unconfined", "default", "image", ".json", "x", "x.yaml", "../x.json", "-x.json"]
SECCOMP_BAD += ["a/../x.json", "a/-x.json", "a//x.json", "//x.json", "a b.json", "a,b.json"]
SECCOMP_BAD += ["~/x.json", "$HOME/x.json", "x.json\n", "x\n.json", "é.json", "x:y.json"]
SECCOMP_BAD += ["json:{}", "x.json/", "./", "..json/..", "a" * 4091 + ".json"]

SHELL_GOOD = ["/bin/sh", "/usr/local/bin/a_b-1.2", "/.x", "/a..b"]
SHELL_BAD = ["", "/", "sh", "bin/sh", "/bin/", "//bin/sh", "/bin/../sh", "/./sh", "/bin/.", "/.."]
SHELL_BAD += ["/bin/sh -c id", "/bin/sh:x", "/bin/sh\n", "/bin/é", "/b$x", "/" + "a" * 4095]

KINDS: dict[str, tuple[Callable[[str], str], str, list[str], list[str]]] = {
    "guest": (paths.check_guest_path, paths.GUEST_PATTERN, GUEST_GOOD, GUEST_BAD),
    "host": (paths.check_host_path, paths.HOST_PATTERN, HOST_GOOD, HOST_BAD),
    "seccomp": (paths.check_seccomp_path, paths.SECCOMP_PATTERN, SECCOMP_GOOD, SECCOMP_BAD),
    "shell": (paths.check_shell, paths.SHELL_PATTERN, SHELL_GOOD, SHELL_BAD),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_such_a_path_may_be(kind: str) -> None:
    check, _, good, _ = KINDS[kind]
    for path in good:
        assert check(path) == path


@pytest.mark.parametrize("kind", KINDS)
def test_everything_else_is_refused(kind: str) -> None:
    check, _, _, bad = KINDS[kind]
    for path in bad:
        with pytest.raises(ValueError, match=r"must|is |would"):
            check(path)


@pytest.mark.parametrize("kind", KINDS)
@given(st.text("abdts.-~/ \n\0é:,$", max_size=14) | st.text(max_size=20))
def test_the_schemas_pattern_is_the_rule(kind: str, path: str) -> None:
    check, pattern, _, _ = KINDS[kind]
    try:
        taken = bool(check(path))
    except ValueError:
        taken = False
    assert (re.fullmatch(pattern, path) is not None) == taken


@pytest.mark.parametrize("kind", KINDS)
@given(st.text("ab.-~/ \n\0:,$", max_size=14))
def test_nothing_taken_climbs_or_is_an_option(kind: str, path: str) -> None:
    check, _, _, _ = KINDS[kind]
    try:
        check(path)
    except ValueError:
        return
    assert ".." not in path.split("/")
    assert not path.startswith("-")
    assert path.isprintable()
