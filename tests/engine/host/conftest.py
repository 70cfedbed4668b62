"""What doctors need that start containers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engine.home import open_home
from tests.live import root_has_ids


@pytest.fixture(scope="module")
def ids() -> Iterator[None]:
    """Root has subordinate IDs, given back afterwards."""
    with root_has_ids():
        yield


@pytest.fixture
def home(box_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and no kernel that the environment names."""
    monkeypatch.delenv("BOX_KERNEL", raising=False)
    return open_home()
