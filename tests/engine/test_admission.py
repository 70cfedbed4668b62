from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.engine import admission
from reconciler.engine.admission import NoMemory
from reconciler.errors import Busy


def test_a_vm_that_fits_is_let_in(home: Path) -> None:
    admission.check_memory(home, 1)


def test_a_vm_that_does_not_fit_is_told_with_numbers_and_a_way_out(home: Path) -> None:
    with pytest.raises(NoMemory, match=r"may use 1073742080 MiB, \d+ MiB are available") as caught:
        admission.check_memory(home, 1 << 30)
    assert isinstance(caught.value, Busy)  # it may pass by itself
    assert "box down" in str(caught.value)


def test_a_snapshot_needs_room_for_twice_the_memory(tmp_path: Path) -> None:
    assert admission.room_for_snapshot(tmp_path, 1)
    assert not admission.room_for_snapshot(tmp_path, 1 << 40)
