from __future__ import annotations

import stat
from pathlib import Path

import pytest

from reconciler.images.initrd import build_initrd
from reconciler.images.kernel import Kernel
from reconciler.linux.process import find_program, run

MODULES = ("virtio_ring", "virtio", "ext4")


@pytest.fixture
def parts(tmp_path: Path) -> tuple[Kernel, Path]:
    for name in MODULES:
        (tmp_path / f"{name}.ko").write_bytes(b"\x7fELF " + name.encode())
    (tmp_path / "agent").write_bytes(b"\x7fELF agent")
    modules = tuple(tmp_path / f"{name}.ko" for name in MODULES)
    return Kernel("6.1", tmp_path / "vmlinux", modules, "test"), tmp_path / "agent"


def cpio(path: Path, *options: str) -> str:
    with path.open("rb") as stream:
        argv = ["cpio", "--quiet", *options]
        return run(argv, stdin=stream.fileno(), timeout_seconds=30).stdout.decode()


@pytest.mark.skipif(find_program("cpio") is None, reason="needs the cpio program")
def test_it_holds_the_agent_and_the_modules_in_their_order(
    box_home: Path, parts: tuple[Kernel, Path]
) -> None:
    path = build_initrd(box_home, *parts)
    listed = [(line.split()[0], line.split()[-1]) for line in cpio(path, "-itv").splitlines()]
    assert ("-rwxr-xr-x", "init") in listed
    assert ("crw-------", "dev/console") in listed
    assert {name for mode, name in listed if mode == "drwxr-xr-x"} == {
        *("dev", "modules", "newroot", "proc", "sys")
    }
    assert cpio(path, "-i", "--to-stdout", "init") == "\x7fELF agent"
    assert (
        cpio(path, "-i", "--to-stdout", "modules/order") == "virtio_ring.ko\nvirtio.ko\next4.ko\n"
    )
    assert cpio(path, "-i", "--to-stdout", "modules/ext4.ko") == "\x7fELF ext4"


def test_a_jail_can_read_it_and_others_cannot_reach_it(
    box_home: Path, parts: tuple[Kernel, Path]
) -> None:
    path = build_initrd(box_home, *parts)
    assert path.parent == box_home / "initrd"
    assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_second_call_finds_it(box_home: Path, parts: tuple[Kernel, Path]) -> None:
    path = build_initrd(box_home, *parts)
    inode = path.stat().st_ino
    assert build_initrd(box_home, *parts) == path
    assert path.stat().st_ino == inode


def test_another_agent_another_module_and_another_order_are_other_files(
    box_home: Path, parts: tuple[Kernel, Path]
) -> None:
    kernel, agent = parts
    paths = {build_initrd(box_home, kernel, agent)}
    agent.write_bytes(b"\x7fELF other")
    paths.add(build_initrd(box_home, kernel, agent))
    kernel.modules[0].write_bytes(b"\x7fELF changed")
    paths.add(build_initrd(box_home, kernel, agent))
    turned = Kernel(kernel.release, kernel.path, kernel.modules[::-1], kernel.source)
    paths.add(build_initrd(box_home, turned, agent))
    assert len(paths) == 4
