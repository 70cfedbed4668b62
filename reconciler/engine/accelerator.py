"""Whether KVM works here: found out by booting on it, once, and remembered for this boot."""

from __future__ import annotations

import time
from pathlib import Path

from reconciler.guest.build import find_agent
from reconciler.linux import files, identity
from reconciler.linux.process import run

KVM = "kvm"
EMULATION = "tcg"
DEVICE = Path("/dev/kvm")


def remembered(home: Path, isolation: str) -> str | None:
    """The accelerator to use, None when KVM has yet to be tried.

    Kept per isolation: under `strict` the VMM has a UID that may not open the device.
    """
    if not DEVICE.exists():
        return EMULATION
    known = _load(home).get(isolation)
    found = known.get("accelerator") if isinstance(known, dict) else None
    return found if found in (KVM, EMULATION) else None


def reason(home: Path, isolation: str) -> str:
    """Why software emulation is used, in words."""
    if not DEVICE.exists():
        return f"{DEVICE} does not exist"
    known = _load(home).get(isolation)
    return str(known.get("reason")) if isinstance(known, dict) else "not tried yet"


def tried_at(home: Path, isolation: str) -> str | None:
    """When that was found out, in UTC; None when it was not tried, or not noted."""
    known = _load(home).get(isolation)
    when = known.get("tried_at") if isinstance(known, dict) else None
    return when if isinstance(when, str) else None


def remember(home: Path, isolation: str, accelerator: str, why: str) -> None:
    """Keep what a trial showed, until the next boot of the host."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    _store(home, {isolation: {"accelerator": accelerator, "reason": why, "tried_at": when}})


def tsc_khz(home: Path) -> int:
    """How fast this host's time stamp counter ticks, measured once per boot; 0 where it has none.

    To 100 kHz: a guest's clock is then right to some seconds a day.
    """
    known = _load(home).get("tsc_khz")
    if isinstance(known, int):
        return known
    measured = run([find_agent(), "--tsc-khz"], timeout_seconds=10, check=False).stdout
    rounded = (int(measured) + 50) // 100 * 100 if measured.strip().isdigit() else 0
    _store(home, {"tsc_khz": rounded})
    return rounded


def _store(home: Path, change: dict[str, object]) -> None:
    value = {**_load(home), **change, "boot_id": identity.boot_id()}
    files.write_json(home / "accelerator.json", value)


def _load(home: Path) -> dict[str, object]:
    try:
        value = files.read_json(home / "accelerator.json")
    except (FileNotFoundError, files.BrokenFile):
        return {}
    return value if value.get("boot_id") == identity.boot_id() else {}
