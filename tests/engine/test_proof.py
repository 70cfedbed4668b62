from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.backends.runtime import Runtime
from reconciler.backends.vmm_files import VmmFiles
from reconciler.engine import proof
from reconciler.engine.parts import Parts
from reconciler.engine.proof import NotProven
from reconciler.guest.protocol import Ready
from reconciler.images.config import ImageConfig
from reconciler.images.kernel import Kernel
from reconciler.images.store import Image
from reconciler.linux import files, identity
from reconciler.vmm.qemu import Machine

NOWHERE = Path("/nowhere")
PARTS = Parts(
    runtime=Runtime(NOWHERE, systemd=False),
    files=VmmFiles(NOWHERE, (), (), (), NOWHERE),
    kernel=Kernel("6.1.0-guest", NOWHERE, (), "test"),
    initrd=NOWHERE,
    image=Image("digest", NOWHERE, "erofs", ImageConfig(), 0),
    fingerprint="f1",
    boundary={},
)
GUEST = Ready(
    protocol=1,
    claimed=False,
    version="1",
    release="6.1.0-guest",
    kernel_version="#1 guest",
    machine="x86_64",
    boot_id="01234567-89ab-cdef-0123-456789abcdef",
)


def test_a_guest_with_a_kernel_of_its_own_is_proven_for_its_fingerprint(home: Path) -> None:
    assert proof.proof_of(home, "qemu", "f1") is None
    proof.prove(home, "qemu", PARTS, GUEST)
    found = proof.proof_of(home, "qemu", "f1")
    assert found is not None
    kernel = {"release": "6.1.0-guest", "version": "#1 guest", "boot_id": GUEST.boot_id}
    assert found["guest"] == kernel
    assert found["host"]["boot_id"] == identity.boot_id()
    assert proof.proof_of(home, "qemu", "f2") is None
    # Never shared between backends.
    assert proof.proof_of(home, "krun", "f1") is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"boot_id": identity.boot_id()}, "the host's"),
        ({"boot_id": ""}, "no boot ID"),
        ({"boot_id": "../../../etc"}, "no boot ID"),
        ({"boot_id": GUEST.boot_id + "\n"}, "no boot ID"),
        ({"release": os.uname().release}, "not the kernel '6.1.0-guest' it was given"),
        ({"release": ""}, "not the kernel"),
    ],
)
def test_what_only_pretends_is_refused_and_nothing_is_kept(
    home: Path, change: dict[str, str], why: str
) -> None:
    with pytest.raises(NotProven, match="own") as caught:
        proof.prove(home, "qemu", PARTS, GUEST._replace(**change))  # type: ignore[arg-type]
    assert why in str(caught.value)
    assert proof.proof_of(home, "qemu", "f1") is None


def test_a_broken_proof_is_no_proof(home: Path) -> None:
    proof.prove(home, "qemu", PARTS, GUEST)
    (path,) = (home / "proofs").iterdir()
    path.write_text("{")
    assert proof.proof_of(home, "qemu", "f1") is None
    proof.prove(home, "qemu", PARTS, GUEST)
    assert files.read_json(path)["backend"] == "qemu"


def test_a_snapshots_key_is_of_all_that_its_state_depends_on() -> None:
    machine = Machine("x86_64", "tcg", 1, 256, 16 << 20, readonly=False)
    keys = {
        PARTS.snapshot_key(machine),
        PARTS.snapshot_key(replace(machine, ram_mib=512)),
        replace(PARTS, fingerprint="f2").snapshot_key(machine),
        replace(PARTS, initrd=Path("/other")).snapshot_key(machine),
        replace(PARTS, image=replace(PARTS.image, digest="other")).snapshot_key(machine),
    }
    assert len(keys) == 5
    assert PARTS.snapshot_key(machine) == PARTS.snapshot_key(machine)
