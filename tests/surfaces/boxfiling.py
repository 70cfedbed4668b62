"""Shared by the tests of the commands about Boxfiles: a box to start, files to put."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.surfaces.cli import app, main

REPO = Path(main.__file__).parents[3]
ARGV = (sys.executable, "-I", str(REPO / "reconciler/__main__.py"))
GOOD = "base: builtin:busybox\nnetwork: none\n"
BAD = "base: builtin:busybox\nnetwork: none\ncpu: 1\nram_mib: many\n"
Capture = pytest.CaptureFixture[str]


def box(
    *words: str | bytes,
    cwd: Path,
    stdin: bytes = b"",
    prepare: Callable[[], None] | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run box as a process of its own."""
    return subprocess.run(
        [*ARGV, *words],
        cwd=cwd,
        env={"PATH": "/usr/bin", "BOX_HOME": str(cwd / "box-home"), **environment},
        input=stdin.decode(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=prepare,
    )


def put(path: Path, text: str = GOOD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def validated(capsys: Capture, *words: str) -> dict[str, Any]:
    """The JSON of a validation, by file."""
    capsys.readouterr()
    status = app.main(["validate", *words, "-o", "json"])
    told = json.loads(capsys.readouterr().out)
    assert status == (0 if told["valid"] else 1)
    files = {each["file"]: each for each in told["files"]}
    assert list(files) == sorted(files)
    assert len(files) == len(told["files"])
    return files


def messages(checked: dict[str, Any], kind: str = "problems") -> str:
    return " | ".join(each["message"] for each in checked[kind])
