"""`-o json` of run and exec with a real guest: one object, as the published schema has it."""

from __future__ import annotations

import base64
import json
import signal
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.live import SMALL, Live

pytestmark = [pytest.mark.vm, pytest.mark.root]

SCHEMA = Path(__file__).parents[2] / "schemas" / "exec-result.schema.json"
VALIDATOR = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
KEPT = 512 << 10


@pytest.fixture
def web(vms: Live) -> Live:
    vms.declare("web", SMALL)
    vms.box("up", "web")
    return vms


def result(live: Live, *words: str, status: int = 0, stdin: bytes | None = None) -> dict[str, Any]:
    """Run box and return the one object on its stdout, which agrees with its exit status."""
    done = live.box(*words, status=status, stdin=stdin)
    assert done.stdout.isascii()
    assert done.stdout.count(b"\n") == 1
    value: dict[str, Any] = json.loads(done.stdout)
    VALIDATOR.validate(value)
    assert value["exit_code"] == status
    return value


def sh(live: Live, script: str, status: int = 0, stdin: bytes | None = None) -> dict[str, Any]:
    words = ("exec", "-o", "json", "web", "--", "sh", "-c", script)
    return result(live, *words, status=status, stdin=stdin)


def test_it_tells_output_and_end(web: Live) -> None:
    value = sh(web, "cat; echo err >&2; exit 143", status=143, stdin="\x1b[2Jé\0".encode())
    assert 0 < value.pop("duration_ms") < 60_000
    assert value == {
        "exit_code": 143,
        "signal": None,
        "timed_out": False,
        "truncated": False,
        "stdout": "\x1b[2Jé\0",
        "stdout_bytes": 7,
        "stdout_encoding": "utf-8",
        "stdout_gap": None,
        "stderr": "err\n",
        "stderr_bytes": 4,
        "stderr_encoding": "utf-8",
        "stderr_gap": None,
    }
    killed = sh(web, "kill -TERM $$", status=128 + signal.SIGTERM)
    assert (killed["signal"], killed["timed_out"]) == ("SIGTERM", False)
    binary = sh(web, r"printf '\377\0'")
    assert (binary["stdout_encoding"], base64.b64decode(binary["stdout"])) == (
        "base64",
        b"\xff\0",
    )
    missing = result(web, "exec", "--output=json", "web", "--", "/no/such", status=127)
    assert "/no/such" in missing["stderr"]
    words = ("exec", "web", "--timeout", "0.5", "-o", "json", "--", "sleep", "60")
    late = result(web, *words, status=124)
    assert (late["signal"], late["timed_out"]) == ("SIGKILL", True)
    assert late["duration_ms"] >= 500

    # Beginning and end of what does not fit.
    megabytes = sh(web, "echo begin; yes | head -c 3000000; echo end")
    assert megabytes["truncated"]
    assert megabytes["stdout_bytes"] == 3_000_010
    assert megabytes["stdout_gap"] == {"offset": KEPT, "length": 3_000_010 - 2 * KEPT}
    assert len(megabytes["stdout"]) == 2 * KEPT
    assert megabytes["stdout"].startswith("begin\ny\n")
    assert megabytes["stdout"].endswith("y\nend\n")
    assert megabytes["stderr_gap"] is None

    # What box itself says is on stderr, and stdout holds nothing.
    for line in ("nosuch -- true", "web -t -- true", "web -o xml -- true"):
        done = web.box("exec", "-o", "json", *line.split(), status=125)
        assert done.stdout == b""
        assert done.stderr.startswith(b"box: ")


def test_run_tells_the_same(vms: Live) -> None:
    vms.declare("web", SMALL)
    value = result(vms, "run", "web", "--no-data", "-o", "json", "--", "echo", "hi")
    assert value["stdout"] == "hi\n"
