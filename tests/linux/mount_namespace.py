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
import ctypes, json, os, subprocess, sys, traceback
from pathlib import Path

def mount(*words):
    subprocess.run(["mount", *map(str, words)], check=True, timeout=30)

def bind(what, where):
    mount("--bind", what, where)

def apart(code, top):
    # What `code` leaves as `answer`, in a child with a mount namespace of its own.
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            assert ctypes.CDLL(None).unshare(0x20000) == 0, "CLONE_NEWNS"
            sys.argv[1:] = [top]
            exec(code, names := globals())
            os.write(write, json.dumps(names["answer"]).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, code
    os.close(write)
    with open(read) as pipe:
        return json.load(pipe)
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


def run_each(imports: str, scripts: list[str], folder: Path) -> list[Any]:
    """The JSON value that each script leaves as `answer`: as by `run`, but one start serves all.

    None sees another's mounts. Each has a new folder below this one as its argument: 0, 1, 2.
    """
    for number in range(len(scripts)):
        (folder / str(number)).mkdir()
    script = "\n".join(
        [
            imports,
            f"scripts = {scripts!r}",
            "each = [apart(text, f'{sys.argv[1]}/{n}') for n, text in enumerate(scripts)]",
            "print(json.dumps(each))",
        ]
    )
    return run(script, folder)
