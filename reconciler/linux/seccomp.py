"""Turn a profile of security/seccomp/ into the `linux.seccomp` object of an OCI spec."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

from reconciler.errors import Missing

# One architecture, no sub-architectures: on x86-64 that shuts the 32-bit and the x32 entry.
_ARCHITECTURES = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
_PACKAGE = Path(__file__).parent.parent


def profile_path(name: str) -> Path:
    """Where profile `name` lies: in an installed wheel, else in a checkout. Missing if nowhere."""
    # A name, never a path: a profile must be one that we ship.
    candidates = (_PACKAGE / "_security", _PACKAGE.parent / "security") if name.isalnum() else ()
    for security in candidates:
        path = security / "seccomp" / f"{name}.json"
        if path.is_file():
            return path
    raise Missing(
        f"There is no seccomp profile {name!r}.", hint="reinstall box: its files are incomplete"
    )


def oci_seccomp(name: str, machine: str) -> dict[str, Any]:
    """The OCI object of profile `name` on `machine` (as uname(2) names it).

    Shape: runtime-spec, config-linux.md, "Seccomp". Raises Missing for an unknown profile or a
    machine the profiles were not written for.
    """
    if machine not in _ARCHITECTURES:
        raise Missing(f"No seccomp profile is written for {machine}.")
    profile = json.loads(profile_path(name).read_bytes())
    calls: list[dict[str, Any]] = [
        {"names": group["names"], "action": "SCMP_ACT_ALLOW"} for group in profile["groups"]
    ]
    calls += [_rule(rule) for rule in profile["rules"]]
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _errno(profile["default"]["errno"]),
        "architectures": [_ARCHITECTURES[machine]],
        "syscalls": calls,
    }


def _rule(rule: dict[str, Any]) -> dict[str, Any]:
    if "errno" in rule:
        return {
            "names": rule["names"],
            "action": "SCMP_ACT_ERRNO",
            "errnoRet": _errno(rule["errno"]),
        }
    args = [
        {
            "index": arg["index"],
            "value": int(arg["mask"], 0),
            "valueTwo": int(arg["equals"], 0),
            "op": "SCMP_CMP_MASKED_EQ",
        }
        for arg in rule["args"]
    ]
    return {"names": rule["names"], "action": "SCMP_ACT_ALLOW", "args": args}


def _errno(name: str) -> int:
    value = getattr(errno, name)
    assert isinstance(value, int)
    return value
