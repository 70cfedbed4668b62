from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.images.scratch import scratch

HOLDER = """
import sys, time
from pathlib import Path
from reconciler.images.scratch import scratch
with scratch(Path(sys.argv[1])) as directory:
    (directory / "half").write_bytes(b"made")
    print(directory, flush=True)
    time.sleep(600)
"""


def directories(home: Path) -> list[Path]:
    return [path for path in (home / "tmp").iterdir() if path.is_dir()]


def test_it_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    with scratch(tmp_path) as directory:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        (directory / "a").mkdir()
    assert directories(tmp_path) == []


def test_it_is_gone_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), scratch(tmp_path):
        raise KeyboardInterrupt
    assert directories(tmp_path) == []


def test_one_in_use_is_left_alone_and_one_of_the_dead_is_removed(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            theirs = Path(holder.stdout.readline().strip())
            with scratch(tmp_path) as mine:
                assert mine != theirs
                assert (theirs / "half").exists()
        finally:
            holder.kill()
    with scratch(tmp_path) as mine:
        assert directories(tmp_path) == [mine]
    assert directories(tmp_path) == []


def test_a_link_planted_among_them_is_not_followed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.mkdir()
    (canary / "file").touch()
    home = tmp_path / "home"
    (home / "tmp").mkdir(parents=True)
    (home / "tmp" / "link").symlink_to(canary)
    with scratch(home):
        pass
    assert (canary / "file").exists()
