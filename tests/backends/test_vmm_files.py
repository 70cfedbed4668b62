from __future__ import annotations

import platform
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from reconciler.backends import vmm_files
from reconciler.linux import files
from reconciler.vmm import qemu

ARCH = platform.machine()
pytestmark = pytest.mark.skipif(
    shutil.which(qemu.binary_name(ARCH)) is None, reason="needs QEMU (in CI ./check installs it)"
)


@pytest.fixture
def found(tmp_path: Path) -> vmm_files.VmmFiles:
    return vmm_files.find_vmm_files(tmp_path, ARCH)


def test_all_that_the_loader_needs_is_among_them(found: vmm_files.VmmFiles) -> None:
    assert all(path.is_file() for path in found.everything())
    listed = subprocess.run(
        ["ldd", found.binary], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    wanted = {word for word in listed.split() if word.startswith("/")}
    have = {str(path) for path in found.libraries}
    assert wanted <= have | {str(Path(each).resolve()) for each in have}


def test_the_loader_is_asked_once_per_version(tmp_path: Path, found: vmm_files.VmmFiles) -> None:
    cache = tmp_path / "libraries.json"
    before = cache.stat().st_mtime_ns
    assert vmm_files.find_vmm_files(tmp_path, ARCH) == found
    assert cache.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"key": 1, "paths": 5}', '{"key": "", "paths": ["/gone"]}']
)
def test_a_broken_cache_is_made_anew(tmp_path: Path, found: vmm_files.VmmFiles, text: str) -> None:
    (tmp_path / "libraries.json").write_text(text)
    assert vmm_files.find_vmm_files(tmp_path, ARCH) == found
    assert "paths" in files.read_json(tmp_path / "libraries.json")


def test_a_library_that_has_gone_is_not_believed_in(
    tmp_path: Path, found: vmm_files.VmmFiles
) -> None:
    cache = tmp_path / "libraries.json"
    value = files.read_json(cache)
    files.write_json(cache, {**value, "paths": [*value["paths"], f"/gone/{time.monotonic_ns()}"]})
    assert vmm_files.find_vmm_files(tmp_path, ARCH) == found
