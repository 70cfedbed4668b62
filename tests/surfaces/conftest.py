"""Real VMs for the tests of the command line, and an empty place for those that need none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engine import passes
from reconciler.images.kernel import fetch_kernel
from tests.live import Live, live, quiet, root_has_ids


@pytest.fixture(scope="session")
def root_ids() -> Iterator[None]:
    """Root has subordinate IDs of its own, as quickstart gives it; given back afterwards."""
    with root_has_ids():
        yield


@pytest.fixture(scope="session")
def _shared(root_ids: None) -> Iterator[Live]:
    with live() as it:
        fetch_kernel(it.home, quiet)
        yield it


@pytest.fixture
def vms(_shared: Live) -> Iterator[Live]:
    """A home whose kernel and snapshots are there already; no VM and no Boxfile left by others."""
    yield _shared
    emptied(_shared)


def emptied(live: Live) -> None:
    """Take away every VM, Boxfile and sandbox, but no snapshot, as `box destroy` would."""
    live.end()
    for path in live.folder.iterdir():
        path.unlink()
    for path in (live.home / "sandboxes").iterdir():
        passes.destroy_records(live.home, path.name)
        shutil.rmtree(path)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory; no folder of Boxfiles is named."""
    monkeypatch.delenv("BOX_DESIRED", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path
