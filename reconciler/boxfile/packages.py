"""What a package may be called, per package manager, and which manager a base has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from reconciler.boxfile.bases import parse_base

if TYPE_CHECKING:
    from reconciler.boxfile.recipe import PackageManager

# Debian Policy 5.6.1 and 5.6.12, with an architecture. Names of `apt-get install` that end in -
# mean removal.
_APT = r"[a-z0-9][a-z0-9+.-]*[a-z0-9+.](:[a-z0-9-]*[a-z0-9])?(=[0-9A-Za-z.+:~-]*[0-9A-Za-z.+:~])?"
# apk-world(5), without repository tags and conflicts. What has .apk in it is taken for a file.
_APK = r"(?!.*[.]apk)[A-Za-z0-9][A-Za-z0-9+._-]*(([<>]=?|[=~])[0-9A-Za-z._~-]+)?"
# A name, or name-[epoch:]version-release.architecture; no group, no glob, no file and no URL.
_DNF = r"[A-Za-z0-9][A-Za-z0-9+._:~^-]*"
_GRAMMARS = {"apk": _APK, "apt": _APT, "dnf": _DNF}
PACKAGE_PATTERN = f"(?!.*[.]rpm$)({_APT}|{_APK}|{_DNF})"
MAX_LENGTH = 256

_EXAMPLES = {
    "apk": "git or git=2.45.2-r0",
    "apt": "git, git=1:2.39.5-0+deb12u2 or libc6:arm64",
    "dnf": "git or git-2.45.2-1.fc40.x86_64",
}
# The last word of an image's name, as the distributions and official images have it.
_MANAGER_OF: dict[str, PackageManager] = {
    "alpine": "apk",
    "wolfi-base": "apk",
    "debian": "apt",
    "ubuntu": "apt",
    "buildpack-deps": "apt",
    "golang": "apt",
    "node": "apt",
    "python": "apt",
    "ruby": "apt",
    "rust": "apt",
    "almalinux": "dnf",
    "centos": "dnf",
    "fedora": "dnf",
    "rockylinux": "dnf",
}


def check_package(name: str) -> str:
    """Return the name, or raise ValueError when no manager could mean a package by it."""
    if len(name) > MAX_LENGTH:
        raise ValueError(f"is longer than {MAX_LENGTH} characters")
    if not re.fullmatch(PACKAGE_PATTERN, name):
        raise ValueError("is no package name: a name, with a version if you like, and no options")
    return name


def package_fault(name: str, manager: PackageManager) -> str | None:
    """Say why `manager` would not take this name for one package; None when it would."""
    if re.fullmatch(_GRAMMARS[manager], name):
        return None
    return f"is no package name of {manager}; it has names like {_EXAMPLES[manager]}"


def manager_of(base: str) -> PackageManager | None:
    """The package manager of a base, by its image's name; None when that does not tell.

    `python:3-alpine` is Alpine, `docker.io/library/debian:12` is Debian. ValueError for no base.
    """
    parsed = parse_base(base)
    if parsed.kind != "image":
        return None
    last = parsed.reference.partition("@")[0].rpartition("/")[2]
    name, _, tag = last.partition(":")
    if re.search(r"(^|-)alpine([0-9.]*)(-|$)", tag):
        return "apk"
    return _MANAGER_OF.get(name)
