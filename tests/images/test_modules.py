from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.errors import Missing
from reconciler.images.modules import REQUIRED, dependencies, needed_modules


def module(*depends: str, softdep: str = "") -> bytes:
    info = [b"license=GPL", b"depends=" + ",".join(depends).encode()]
    if softdep:
        info.append(b"softdep=pre: " + softdep.encode())
    return b"\x7fELF" + b"\0code depends=nonsense \0" + b"\0".join(info) + b"\0name=x\0"


def plant(directory: Path, name: str, data: bytes) -> None:
    path = directory / "kernel" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def kernel_with(directory: Path, *builtin: str) -> None:
    lines = [f"kernel/{name}.ko" for name in builtin]
    (directory / "modules.builtin").write_text("\n".join(lines) + "\n")


def names(directory: Path) -> list[str]:
    return [module.name for module in needed_modules(directory, "6.1")]


def test_each_module_comes_after_what_it_depends_on(tmp_path: Path) -> None:
    plant(tmp_path, "drivers/virtio.ko", module("virtio_ring"))
    plant(tmp_path, "drivers/virtio_ring.ko", module())
    plant(tmp_path, "drivers/virtio_blk.ko", module("virtio", "virtio_ring"))
    plant(tmp_path, "drivers/unneeded.ko", module())
    kernel_with(tmp_path, "virtio_mmio", "virtio_console", "overlay", "ext4")
    assert names(tmp_path) == ["virtio_ring", "virtio", "virtio_blk"]


def test_hyphens_and_underscores_are_the_same(tmp_path: Path) -> None:
    plant(tmp_path, "virtio-blk.ko", module("virtio-ring"))
    plant(tmp_path, "virtio_ring.ko", module())
    assert names(tmp_path) == ["virtio_ring", "virtio_blk"]


def test_what_is_asked_for_softly_comes_before_too(tmp_path: Path) -> None:
    plant(tmp_path, "ext4.ko", module("jbd2", softdep="crc32c nothing"))
    plant(tmp_path, "crc32c.ko", module())
    plant(tmp_path, "jbd2.ko", module())
    assert names(tmp_path) == ["jbd2", "crc32c", "ext4"]


def test_a_circle_ends(tmp_path: Path) -> None:
    plant(tmp_path, "ext4.ko", module("overlay"))
    plant(tmp_path, "overlay.ko", module("ext4"))
    assert sorted(names(tmp_path)) == ["ext4", "overlay"]


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".xz", lzma.compress), (".gz", gzip.compress), ("", bytes)]
)
def test_modules_come_out_plain(
    tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    plant(tmp_path, f"ext4.ko{suffix}", compress(module()))
    assert [m.data for m in needed_modules(tmp_path, "6.1")] == [module()]


def test_a_kernel_that_cannot_run_a_guest_is_refused(tmp_path: Path) -> None:
    kernel_with(tmp_path, *(name for name in REQUIRED if name != "virtio_console"))
    with pytest.raises(Missing, match="virtio_console"):
        needed_modules(tmp_path, "6.1")


def test_without_a_list_all_that_is_not_there_counts_as_built_in(tmp_path: Path) -> None:
    assert needed_modules(tmp_path, "6.1") == ()


def test_dependencies_are_those_of_the_modinfo_section() -> None:
    assert dependencies(module("a-b", "c")) == ("a_b", "c")
    assert dependencies(module()) == ()
