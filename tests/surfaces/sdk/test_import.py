"""A program that imports the door pays for the door alone."""

from __future__ import annotations

import subprocess
import sys

NOT_YET = (
    "asyncio", "dataclasses", "pydantic", "subprocess", "typer", "yaml",
    "reconciler.engine.launching", "reconciler.guest.channel", "reconciler.surfaces.declared",
)  # fmt: skip


def test_what_starts_vms_is_not_loaded_before_one_is_started() -> None:
    code = f"import sys, reconciler.sdk; print([m for m in {NOT_YET} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"[]\n"
