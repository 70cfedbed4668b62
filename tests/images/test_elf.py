from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reconciler.images.busybox import find_busybox
from reconciler.images.elf import NotElf, interpreter


def test_a_dynamic_program_names_its_loader() -> None:
    loader = interpreter(Path("/bin/sh"))
    assert loader is not None
    assert loader.exists()
    assert "ld-linux" in loader.name


def test_a_static_program_has_none() -> None:
    assert interpreter(find_busybox()) is None


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + b"\0" * 60, b"\x7fELF"])
def test_what_is_no_such_program_is_told(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(NotElf):
        interpreter(tmp_path / "x")


def test_a_program_cut_short_is_told(tmp_path: Path) -> None:
    whole = Path(sys.executable).read_bytes()
    (tmp_path / "x").write_bytes(whole[:100])
    with pytest.raises(NotElf):
        interpreter(tmp_path / "x")
