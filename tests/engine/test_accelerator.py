from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.engine import accelerator
from reconciler.engine.accelerator import EMULATION, KVM


def test_what_was_tried_is_remembered_per_isolation(home: Path) -> None:
    accelerator.remember(home, "strict", EMULATION, "the guest hung")
    accelerator.remember(home, "standard", KVM, "a guest booted")
    if accelerator.DEVICE.exists():
        assert accelerator.remembered(home, "strict") == EMULATION
        assert accelerator.remembered(home, "standard") == KVM
        assert accelerator.reason(home, "strict") == "the guest hung"
    else:
        assert accelerator.remembered(home, "standard") == EMULATION
        assert "does not exist" in accelerator.reason(home, "standard")


@pytest.mark.skipif(not accelerator.DEVICE.exists(), reason="without /dev/kvm nothing is tried")
@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"strict": {}}', '{"strict": 5}', '{"strict": {"accelerator": "warp"}}'],
)
def test_a_broken_memory_is_none(home: Path, text: str) -> None:
    accelerator.remember(home, "strict", EMULATION, "x")
    path = home / "accelerator.json"
    boot = json.loads(path.read_text())["boot_id"]
    with_boot = json.dumps({**json.loads(text), "boot_id": boot}) if text.startswith("{") else text
    path.write_text(with_boot)
    assert accelerator.remembered(home, "strict") is None
    assert accelerator.reason(home, "strict") in ("not tried yet", "None")
    accelerator.remember(home, "strict", EMULATION, "again")
    assert accelerator.remembered(home, "strict") == EMULATION


@pytest.mark.skipif(not accelerator.DEVICE.exists(), reason="without /dev/kvm nothing is tried")
def test_another_boot_tries_anew(home: Path) -> None:
    accelerator.remember(home, "strict", EMULATION, "x")
    path = home / "accelerator.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot_id": "another"}))
    assert accelerator.remembered(home, "strict") is None
