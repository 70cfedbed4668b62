from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.engine.host.checks import check_host


def test_what_fails_says_how_to_mend_it(box_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOX_KERNEL", "/no/such/kernel")
    (check,) = [each for each in check_host(box_home) if each.name == "kernel"]
    assert not check.works
    assert "/no/such/kernel" in check.found
    assert check.fix is not None
    assert "BOX_KERNEL" in check.fix


def test_trying_leaves_nothing_behind(box_home: Path) -> None:
    check_host(box_home)
    assert [path.name for path in (box_home / "tmp").iterdir()] == [".lock"]
    assert not list((box_home / "run").glob("*"))
