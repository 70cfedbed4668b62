from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.images.kernel import Kernel, fetch_kernel


@pytest.fixture(scope="session")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Kernel:
    """Return the distribution's kernel, downloaded once for all tests (some 25 MB)."""
    home: Path = tmp_path_factory.mktemp("kernel-home")
    return fetch_kernel(home, lambda message: None)
