"""Whether KVM works here: found out by booting on it, once, and remembered for this boot."""

from __future__ import annotations

from pathlib import Path

from reconciler.linux import files, identity

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


def remember(home: Path, isolation: str, accelerator: str, why: str) -> None:
    """Keep what a trial showed, until the next boot of the host."""
    value = _load(home) | {isolation: {"accelerator": accelerator, "reason": why}}
    value["boot_id"] = identity.boot_id()
    files.write_json(home / "accelerator.json", value)


def _load(home: Path) -> dict[str, object]:
    try:
        value = files.read_json(home / "accelerator.json")
    except (FileNotFoundError, files.BrokenFile):
        return {}
    return value if value.get("boot_id") == identity.boot_id() else {}
