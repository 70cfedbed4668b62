"""A home, a folder and an engine for the controller's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controller.sleepers import Sleepers, sleepers


@pytest.fixture
def engine(box_home: Path) -> Iterator[Sleepers]:
    assert box_home.is_dir()
    with sleepers() as engine:
        yield engine


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "desired"
    folder.mkdir()
    return folder.resolve()
