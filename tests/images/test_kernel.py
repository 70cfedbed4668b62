from __future__ import annotations

import gzip
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from reconciler.errors import BoxError, Missing
from reconciler.images.kernel import Kernel, ensure_kernel, fetch_kernel, find_kernel
from reconciler.linux.files import locked, read_json, write_json
from tests.images.test_bzimage import bzimage
from tests.images.test_modules import kernel_with, module, plant
from tests.live import until

RELEASE = "6.1.0-1-test"
PLAIN = b"\x7fELF" + bytes(1000) + b"Linux version 6.1.0-1-test (me) #1\0"
KILLED_IN_FETCH = """
import os, signal, sys
from pathlib import Path
from reconciler.images.kernel import fetch_kernel

def progress(message):
    if message.startswith(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

fetch_kernel(Path(sys.argv[1]), progress)
"""
needs_apt = pytest.mark.skipif(not Path("/usr/bin/apt-get").exists(), reason="needs apt")


def kept(home: Path, release: str) -> None:
    directory = home / "kernels" / release
    directory.mkdir(parents=True)
    facts = {"image": "vmlinux", "order": [], "release": release, "source": "test"}
    write_json(directory / "meta.json", facts)


def test_without_a_kernel_the_way_to_one_is_told(box_home: Path) -> None:
    with pytest.raises(Missing, match="no guest kernel") as caught:
        find_kernel(box_home)
    assert "box quickstart" in (caught.value.hint or "")
    assert "BOX_KERNEL" in (caught.value.hint or "")


def test_the_newest_release_counts(box_home: Path) -> None:
    for release in ("6.1.0-9-cloud-amd64", "6.1.0-57-cloud-amd64", "5.10.0-99-cloud-amd64"):
        kept(box_home, release)
    kept(box_home, "custom-ffff")
    assert find_kernel(box_home).release == "6.1.0-57-cloud-amd64"


def test_one_command_fetches_it_and_others_wait_for_that(
    box_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BOX_KERNEL", raising=False)
    told: list[str] = []
    found: list[Kernel] = []
    with locked(box_home / "kernel.lock"):
        waiting = threading.Thread(
            target=lambda: found.append(ensure_kernel(box_home, told.append))
        )
        waiting.start()
        until(lambda: told)
        kept(box_home, "6.1.0-9-cloud-amd64")
    waiting.join()
    assert [each.release for each in found] == ["6.1.0-9-cloud-amd64"]
    # It says nothing of fetching one.
    assert told == ["waiting for the kernel that another command fetches"]


def test_box_kernel_takes_a_plain_kernel_with_nothing_to_load(
    box_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "my,kernel"
    image.write_bytes(PLAIN)
    image.chmod(0o600)
    monkeypatch.setenv("BOX_KERNEL", str(image))
    kernel = find_kernel(box_home)
    assert (kernel.release, kernel.modules) == (RELEASE, ())
    assert kernel.path.read_bytes() == PLAIN
    assert kernel.path.is_relative_to(box_home)
    assert stat.S_IMODE(kernel.path.stat().st_mode) == 0o444, "a jail could not read it"


def test_box_kernel_is_unpacked_and_gets_its_modules(
    box_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tmp_path / "modules"
    plant(modules, "virtio_blk.ko", module("virtio"))
    plant(modules, "virtio.ko", module())
    (tmp_path / "vmlinuz").write_bytes(bzimage(gzip.compress(PLAIN)))
    monkeypatch.setenv("BOX_KERNEL", str(tmp_path / "vmlinuz"))
    monkeypatch.setenv("BOX_KERNEL_MODULES", str(modules))
    kernel = find_kernel(box_home)
    assert kernel.path.name == "vmlinux"
    assert kernel.path.read_bytes() == PLAIN
    assert [path.name for path in kernel.modules] == ["virtio.ko", "virtio_blk.ko"]
    assert kernel.modules[0].read_bytes() == module()


def test_modules_are_found_beside_the_image(
    box_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/vmlinuz").write_bytes(PLAIN)
    plant(tmp_path / "lib/modules" / RELEASE, "virtio_blk.ko", module())
    monkeypatch.setenv("BOX_KERNEL", str(tmp_path / "boot/vmlinuz"))
    assert [path.name for path in find_kernel(box_home).modules] == ["virtio_blk.ko"]


def test_box_kernel_is_taken_in_once_until_it_changes(
    box_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = tmp_path / "vmlinux"
    image.write_bytes(PLAIN)
    monkeypatch.setenv("BOX_KERNEL", str(image))
    first = find_kernel(box_home)
    inode = first.path.stat().st_ino
    assert find_kernel(box_home) == first
    assert first.path.stat().st_ino == inode
    image.write_bytes(PLAIN + b"more")
    assert find_kernel(box_home).path.read_bytes() == PLAIN + b"more"


def test_a_boot_image_that_cannot_be_unpacked_boots_as_it_is(
    box_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = bzimage(b"compressed by something new", version=b"6.1.0-1-test (me)")
    (tmp_path / "vmlinuz").write_bytes(image)
    monkeypatch.setenv("BOX_KERNEL", str(tmp_path / "vmlinuz"))
    kernel = find_kernel(box_home)
    assert (kernel.path.name, kernel.release) == ("bzImage", RELEASE)
    assert kernel.path.read_bytes() == image


@pytest.mark.parametrize(
    "data", [b"", b"no kernel", b"Linux version ../../escape (x)", b"Linux version /abs (x)"]
)
def test_what_is_no_kernel_is_refused(
    box_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    (tmp_path / "image").write_bytes(data)
    monkeypatch.setenv("BOX_KERNEL", str(tmp_path / "image"))
    with pytest.raises(BoxError, match="not a Linux kernel"):
        find_kernel(box_home)
    assert not (box_home / "kernels").exists()


def test_a_box_kernel_that_is_not_there_is_told(
    box_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOX_KERNEL", "/nonexistent/vmlinuz")
    with pytest.raises(Missing, match="/nonexistent/vmlinuz") as caught:
        find_kernel(box_home)
    assert "BOX_KERNEL" in (caught.value.hint or "")


def test_a_kernel_without_what_a_guest_needs_is_refused(
    box_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vmlinux").write_bytes(PLAIN)
    kernel_with(tmp_path)
    monkeypatch.setenv("BOX_KERNEL", str(tmp_path / "vmlinux"))
    monkeypatch.setenv("BOX_KERNEL_MODULES", str(tmp_path))
    with pytest.raises(Missing, match="virtio_console"):
        find_kernel(box_home)


@needs_apt
@pytest.mark.slow
def test_the_distributions_kernel_is_fetched_unpacked_and_found(kernel: Kernel) -> None:
    directory = kernel.path.parent
    home = directory.parent.parent
    assert directory.name == kernel.release
    assert find_kernel(home) == kernel
    assert f"Linux version {kernel.release} (".encode() in kernel.path.read_bytes()
    names = [path.stem for path in kernel.modules]
    assert names.index("virtio_ring") < names.index("virtio_blk")
    for path in (kernel.path, *kernel.modules):
        assert path.read_bytes()[:4] == b"\x7fELF"
        assert stat.S_IMODE(path.stat().st_mode) == 0o444
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert "linux-image" in kernel.source
    assert sorted(path.name for path in home.iterdir()) == ["kernels", "tmp"]
    assert not Path("/boot", f"vmlinuz-{kernel.release}").exists(), "it was installed"


@needs_apt
@pytest.mark.slow
@pytest.mark.parametrize("moment", ["downloading", "unpacking"])
def test_a_fetch_killed_at_any_point_is_simply_run_again(box_home: Path, moment: str) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_IN_FETCH, str(box_home), moment], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(Missing):
        find_kernel(box_home)
    kernel = fetch_kernel(box_home, lambda message: None)
    assert find_kernel(box_home) == kernel
    assert list((box_home / "tmp").glob("*/")) == []


@needs_apt
@pytest.mark.slow
def test_a_new_build_of_the_same_release_takes_the_place_of_the_old(
    box_home: Path, kernel: Kernel
) -> None:
    copy = box_home / "kernels" / kernel.release
    shutil.copytree(kernel.path.parent, copy)
    write_json(copy / "meta.json", {**read_json(copy / "meta.json"), "source": "an older build"})
    (copy / "vmlinux").chmod(0o600)
    (copy / "vmlinux").write_bytes(b"old")
    assert fetch_kernel(box_home, lambda message: None).source == kernel.source
    assert find_kernel(box_home).path.read_bytes() == kernel.path.read_bytes()


@needs_apt
@pytest.mark.slow
@pytest.mark.root
def test_an_ordinary_user_fetches_it_too(box_home: Path, kernel: Kernel) -> None:
    theirs = box_home / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    box_home.chmod(0o711)
    script = KILLED_IN_FETCH.replace("sys.argv[2]", "'never'")
    subprocess.run(
        [
            *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
            *("/usr/bin/python3", "-c", script, str(theirs)),
        ],
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert find_kernel(theirs).source == kernel.source
