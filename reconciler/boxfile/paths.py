"""Paths in a Boxfile: of the host, of the guest, and of files beside the Boxfile."""

from __future__ import annotations

import re

from reconciler.boxfile.characters import CONTROL_CHARACTERS, check_no_controls

MAX_LENGTH = 4095  # PATH_MAX, limits.h
# The guest's own, /data, and where image builds keep files: what lies over or in them would be
# hidden, or hide them.
OWN_GUEST_PATHS = ("/.box-build", "/data", "/dev", "/proc", "/sys")

_NAME = rf"(?!\.{{1,2}}(/|$))[^/{CONTROL_CHARACTERS}]+"
GUEST_PATTERN = rf"(?!/([.]box-build|data|dev|proc|sys)(/|$))(/{_NAME})+"
# Not relative: the folder of Boxfiles is never shared. Not `~name`: no other user's home.
HOST_PATTERN = rf"(?!.*/\.\.(/|$))(/|~(/|$))[^{CONTROL_CHARACTERS}]*"
_PLAIN = r"(?!\.\./)[A-Za-z0-9._][A-Za-z0-9._+@=~-]*"
SECCOMP_PATTERN = rf"/?({_PLAIN}/)*{_PLAIN}\.json"
SHELL_PATTERN = r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._-]+)+"


def check_guest_path(path: str) -> str:
    """Return an absolute, normal path of the guest, or raise ValueError."""
    _check_length(path)
    check_no_controls(path)
    if not path.startswith("/"):
        raise ValueError("must be an absolute path of the guest, like /work")
    if path == "/":
        raise ValueError("is the guest's whole root; name a path below it, like /work")
    if any(part in {"", ".", ".."} for part in path[1:].split("/")):
        raise ValueError("must have no empty part, no . and no .. in it, and no / at its end")
    if path.startswith(tuple(f"{own}/" for own in OWN_GUEST_PATHS)) or path in OWN_GUEST_PATHS:
        raise ValueError("is over or in one of " + ", ".join(OWN_GUEST_PATHS))
    return path


def check_host_path(path: str) -> str:
    """Return a path of the host as written, or raise ValueError; nothing is looked at."""
    _check_length(path)
    check_no_controls(path)
    if not path:
        raise ValueError("is empty; name a folder or file of the host")
    if ".." in path.split("/"):
        raise ValueError("must not contain ..")
    if not path.startswith(("/", "~/")) and path != "~":
        raise ValueError("must be absolute or start with ~/; the folder of Boxfiles is not shared")
    return path


def check_seccomp_path(path: str) -> str:
    """Return the path of a seccomp profile, or raise ValueError."""
    _check_length(path)
    if path == "unconfined":
        raise ValueError("would be no confinement; name the path of a profile")
    if not re.fullmatch(SECCOMP_PATTERN, path):
        raise ValueError(
            "must be the path of a .json file made of letters, digits and ._+@=~-/, with no part "
            "that starts with - or is .."
        )
    return path


def check_shell(path: str) -> str:
    """Return the path of a login shell, or raise ValueError."""
    _check_length(path)
    if not re.fullmatch(SHELL_PATTERN, path):
        raise ValueError("must be an absolute path made of letters, digits and ._-/, with no ..")
    return path


def _check_length(path: str) -> None:
    if len(path.encode()) > MAX_LENGTH:
        raise ValueError(f"is longer than {MAX_LENGTH} bytes")
