"""What every test shares: markers, a BOX_HOME of its own, nothing of the developer's home."""

from __future__ import annotations

import gc
import gzip
import os
import platform
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

VM_TIMEOUT_SECONDS = 400
# No registry, no systemd, and a root that may not raise limits or make a network of its own.
CONTAINERS_CONF = """
[containers]
netns = "host"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "{runtime}"
"""

# The same examples in every run, and no deadline on a busy machine.
settings.register_profile("box", derandomize=True, database=None, deadline=None)
settings.load_profile("box")

# Thousands of tests are no garbage, and would be looked at again and again while more are found,
# and by each full collection while they run: a quarter of the time of small tests.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    no_root = pytest.mark.skip(reason="needs root")
    no_qemu = pytest.mark.skip(reason="needs QEMU (in CI its absence is a failure)")
    qemu = shutil.which(f"qemu-system-{platform.machine()}")
    for item in items:
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(no_root)
        if item.get_closest_marker("vm"):
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(VM_TIMEOUT_SECONDS))
            if qemu is None and "CI" not in os.environ:
                item.add_marker(no_qemu)
    # Where several files are tested at once, one that takes minutes and begins last keeps all but
    # one of the cores waiting.
    vm = Counter(item.path for item in items if item.get_closest_marker("vm"))
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: (-vm[item.path], -slow[item.path]))


def short_folder() -> Path:
    """Make a private folder whose path leaves room for a Unix socket's 107 bytes."""
    return Path(tempfile.mkdtemp(prefix="box-", dir="/tmp"))


@pytest.fixture(scope="session", autouse=True)
def _nobodys_home() -> Iterator[None]:
    """A test that forgets to set BOX_HOME must not find the developer's."""
    folder = short_folder()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("BOX_HOME", str(folder))
        yield
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """What box sets for its process does not reach the next test."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def box_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield an empty BOX_HOME (0700, short path), set in the environment, gone afterwards."""
    folder = short_folder()
    monkeypatch.setenv("BOX_HOME", str(folder))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def debian() -> Iterator[Path]:
    """Yield an OCI archive of a small Debian with Python, made from the distribution's packages."""
    from reconciler.linux.process import run
    from tests.images.archives import layout

    folder = short_folder()
    tar = folder / "root.tar"
    suite = platform.freedesktop_os_release()["VERSION_CODENAME"]
    command = ["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3-minimal"]
    run([*command, suite, str(tar)], timeout_seconds=300)
    data = gzip.compress(tar.read_bytes(), 1)
    tar.unlink()
    yield layout([data], {"Env": ["PATH=/usr/bin:/bin"]}).pack(folder / "image.tar")
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def podman_folder() -> Iterator[Path]:
    """Yield a folder with a storage of podman's that nobody else uses, and its configuration."""
    folder = short_folder()
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n'
    )
    from reconciler.linux.process import find_program

    runtime = "runc" if find_program("runc") else "crun"
    (folder / "containers.conf").write_text(CONTAINERS_CONF.format(runtime=runtime))
    yield folder
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    for target in sorted((line.split()[1] for line in mounts), reverse=True):
        if target.startswith(f"{folder}/"):
            subprocess.run(["umount", target], check=True)
    shutil.rmtree(folder)


@pytest.fixture
def podman_storage(podman_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make podman use the storage of the tests; its images stay from test to test."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(podman_folder / "storage.conf"))
    monkeypatch.setenv("CONTAINERS_CONF", str(podman_folder / "containers.conf"))
    assert os.access(podman_folder, os.W_OK)
    return podman_folder
