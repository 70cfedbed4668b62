"""The stand-in VMM, and an ordinary user who can start it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import short_folder
from tests.linux import ordinary_user
from tests.linux.ordinary_user import OrdinaryUser
from tests.probe import program

REPO = Path(program.__file__).parents[2]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A directory that other users can enter."""
    path = short_folder()
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def probe(folder: Path) -> Path:
    return program.build(folder)


@pytest.fixture(scope="module")
def user(probe: Path) -> Iterator[OrdinaryUser]:
    with ordinary_user.made() as it:
        shutil.copytree(REPO / "tests/probe", it.home / "src/tests/probe")
        shutil.copy(probe, it.home / "probe")
        subprocess.run(["chown", "-R", f"{it.uid}:{it.gid}", it.home], check=True, timeout=60)
        yield it
