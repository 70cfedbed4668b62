"""Python scripts in a mount namespace of their own, where root may mount over anything."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

REPO = Path(__file__).parents[2]
PRELUDE = """
import json, os, subprocess, sys
from pathlib import Path

def mount(*words):
    subprocess.run(["mount", *map(str, words)], check=True, timeout=30)

def bind(what, where):
    mount("--bind", what, where)
"""


def run(script: str, *arguments: str | Path) -> list[Any]:
    """The JSON list that a script prints, given `mount` and `bind`, or its error as ours."""
    done = subprocess.run(
        [
            *("unshare", "--mount", "--propagation", "private", sys.executable),
            *("-c", PRELUDE + textwrap.dedent(script), *arguments),
        ],
        cwd=REPO,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found
