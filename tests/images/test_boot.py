"""The kernel, the initrd and the root images in a real virtual machine, without the agent."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from reconciler.boxfile.recipe import NewFile, Recipe
from reconciler.images.initrd import build_initrd
from reconciler.images.kernel import Kernel
from reconciler.images.rootfs import build_image
from reconciler.linux.process import find_program, run

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(find_program("musl-gcc") is None, reason="needs musl-tools"),
    pytest.mark.skipif(find_program("mmdebstrap") is None, reason="needs mmdebstrap"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="microvm is an x86 machine"),
]
# Without the last two the kernel waits for a clock that an emulator does not have.
COMMAND_LINE = "console=ttyS0 quiet reboot=t panic=-1 tsc_early_khz=2100000 lpj=4000000"


@pytest.fixture(scope="module")
def init(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("init") / "init"
    source = Path(__file__).with_name("init.c")
    run(["musl-gcc", "-static", "-Wall", "-o", program, source], timeout_seconds=60)
    return program


def boot(kernel: Kernel, initrd: Path, root: Path) -> list[str]:
    """Boot until the guest resets itself; return its console's lines."""
    argv: list[str | Path] = [
        *("qemu-system-x86_64", "-M", "microvm,accel=tcg,acpi=on", "-m", "256", "-nodefaults"),
        *("-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
        *("-kernel", kernel.path, "-initrd", initrd, "-append", COMMAND_LINE),
        *("-blockdev", f"driver=file,node-name=root,read-only=on,filename={root}"),
        *("-device", "virtio-blk-device,drive=root"),
    ]
    output = run(argv, timeout_seconds=120).stdout.decode(errors="replace")
    return [line.strip() for line in output.splitlines()]


def test_busybox_boots(box_home: Path, kernel: Kernel, init: Path) -> None:
    image = build_image(box_home, "builtin:busybox", lambda message: None)
    console = boot(kernel, build_initrd(box_home, kernel, init), image.path)
    assert "SAID 42" in console, console
    assert "SEEN /newroot 40755 0:0" in console
    assert "SEEN /newroot/tmp 41777 0:0" in console
    # The tree has no shadow file: a passwd without passwords needs none.
    failed = [line for line in console if "FAILED" in line]
    assert failed == ["FAILED /newroot/etc/shadow: No such file or directory"]


def test_an_oci_image_boots_with_its_owners_and_modes(
    box_home: Path, kernel: Kernel, init: Path, debian: Path
) -> None:
    image = build_image(box_home, f"oci-archive:{debian}", lambda message: None)
    console = boot(kernel, build_initrd(box_home, kernel, init), image.path)
    assert "SAID 42" in console, console
    assert "SEEN /newroot 40755 0:0" in console
    assert "SEEN /newroot/bin/su 104755 0:0" in console
    assert "SEEN /newroot/etc/shadow 100640 0:42" in console
    assert not [line for line in console if "FAILED" in line]


@pytest.mark.root
@pytest.mark.skipif(find_program("podman") is None, reason="needs podman")
@pytest.mark.usefixtures("podman_storage")
def test_what_a_recipe_adds_is_in_the_guest(box_home: Path, kernel: Kernel, init: Path) -> None:
    recipe = Recipe("builtin:busybox", files=(NewFile("/etc/shadow", "", "0640"),), run=("true",))
    image = build_image(box_home, recipe, lambda message: None)
    console = boot(kernel, build_initrd(box_home, kernel, init), image.path)
    assert "SAID 42" in console, console
    assert "SEEN /newroot/etc/shadow 100640 0:0" in console
    assert "SEEN /newroot/tmp 41777 0:0" in console
    assert not [line for line in console if "FAILED" in line]
