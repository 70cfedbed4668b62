from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from reconciler.errors import Missing
from reconciler.images.packages import (
    DISTRIBUTIONS,
    apt_depends,
    apt_download,
    dnf_download,
    dpkg_unpack,
    rpm_unpack,
    rpm_verify,
    unpack_kernel,
)


def row(identifier: str) -> dict[str, tuple[str, ...]]:
    (found,) = (row for row in DISTRIBUTIONS if identifier in row.identifiers)
    return found.kernels


def test_each_distribution_names_its_kernel_for_virtual_machines() -> None:
    assert row("debian")["x86_64"][0] == "linux-image-cloud-amd64"
    assert row("debian")["aarch64"][0] == "linux-image-cloud-arm64"
    assert row("ubuntu")["x86_64"][0] == "linux-image-virtual"
    assert row("fedora")["x86_64"] == ("kernel-core", "kernel-modules-core")


def test_command_lines_download_check_and_unpack_but_never_install() -> None:
    lines = [
        apt_depends("k"),
        apt_download(("a", "b")),
        dpkg_unpack(Path("/t/a.deb"), Path("/t")),
        dnf_download(("a", "b"), Path("/t")),
        rpm_verify((Path("/t/a.rpm"),)),
        rpm_unpack(),
    ]
    assert lines == [
        ["apt-cache", "depends", "--important", "k"],
        ["apt-get", "download", "-q", "-o", "APT::Get::AllowUnauthenticated=false", "a", "b"],
        ["dpkg-deb", "--extract", "/t/a.deb", "/t"],
        ["dnf", "download", "--destdir", "/t", "a", "b"],
        ["rpmkeys", "--define", "_pkgverify_level all", "--checksig", "/t/a.rpm"],
        ["cpio", "--extract", "--make-directories", "--quiet", "--no-absolute-filenames"],
    ]
    assert not any("install" in line for line in lines)


@pytest.mark.parametrize(
    ("os_release", "machine"),
    [("ID=plan9\n", "x86_64"), ("", "x86_64"), ("ID=debian\n", "riscv64"), ("junk", "x86_64")],
)
def test_an_unknown_system_is_told_about_box_kernel(
    tmp_path: Path, os_release: str, machine: str
) -> None:
    with pytest.raises(Missing, match="BOX_KERNEL"):
        unpack_kernel(os_release, machine, tmp_path, print)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/usr/bin/apt-get").exists(), reason="needs apt")
def test_a_package_list_without_the_kernel_says_update(tmp_path: Path) -> None:
    # A machine for which this distribution's lists hold no kernel looks like empty lists.
    known = subprocess.run(
        ["apt-cache", "show", "linux-image-cloud-arm64"], check=False, capture_output=True
    )
    if known.stdout:
        pytest.skip("the lists here hold arm64 too")
    with pytest.raises(Missing, match="apt-get update"):
        unpack_kernel("ID=debian\n", "aarch64", tmp_path, print)
