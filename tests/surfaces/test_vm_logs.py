"""The logs of commands and of the console, with real guests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from reconciler.engine import command_log, console_log
from tests.live import DATA, SMALL, Live, until

pytestmark = [pytest.mark.vm, pytest.mark.root]


@pytest.fixture
def web(vms: Live) -> Live:
    vms.declare("web", SMALL + DATA)
    vms.box("up", "web")
    return vms


def lines(live: Live) -> list[dict[str, Any]]:
    out = live.box("logs", "web", "-o", "json").stdout
    return [json.loads(line) for line in out.splitlines()]


def ends(live: Live) -> list[tuple[Any, ...]]:
    keys = ("verb", "argv", "exit_code", "signal", "timed_out")
    return [tuple(map(each.get, keys)) for each in lines(live) if each["event"] == "end"]


def kept(live: Live) -> bytes:
    path = console_log.path_of(live.home, "web")
    return path.read_bytes() if path.exists() else b""


def test_each_command_is_in_the_log_and_nothing_that_was_said(web: Live) -> None:
    secret = "s3cr3t-word"
    script = "cat; exit 3"
    words = ("exec", "web", "-e", f"A={secret}", "--", "sh", "-c", script)
    assert web.box(*words, stdin=secret.encode(), status=3).stdout == secret.encode()
    web.box("exec", "web", "-o", "json", "--", "echo", "hi")
    web.box("exec", "web", "--timeout", "0.5", "--", "sleep", "60", status=124)
    web.box("shell", "web", stdin=b"kill -TERM $$\n", status=143)
    web.box("cp", "web:/etc/passwd", str(web.home / "passwd"))
    web.box("run", "web", "--no-data", "--", "true")
    assert ends(web) == [
        ("exec", ["sh", "-c", script], 3, None, False),
        ("exec", ["echo", "hi"], 0, None, False),
        ("exec", ["sleep", "60"], 124, "SIGKILL", True),
        ("shell", ["shell"], 143, "SIGTERM", False),
        ("cp", ["send", "/etc/passwd"], 0, None, False),
        ("run", ["true"], 0, None, False),
    ]
    found = lines(web)
    assert [each["stdout_bytes"] for each in found if each["event"] == "end"][1] == 3
    assert [each["vm"] for each in found][:2] == ["web", "web"]
    assert found[-1]["vm"].startswith("web.")
    raw = Path(command_log.path_of(web.home, "web")).read_bytes()
    assert secret.encode() not in raw
    assert web.vm("web").token.encode() not in raw

    # Killed on the spot, it has told that it began, and the next one is not affected.
    child = web.start("exec", "web", "--", "sleep", "50")
    until(lambda: lines(web)[-1]["argv"] == ["sleep", "50"])
    child.kill()
    child.wait()
    web.box("exec", "web", "--", "true")
    assert [each["event"] for each in lines(web)[-3:]] == ["start", "start", "end"]
    child = web.start("exec", "web", "--", "sleep", "51")
    until(lambda: lines(web)[-1]["argv"] == ["sleep", "51"])
    # The first goes to the command, the second ends box.
    child.send_signal(signal.SIGINT)
    child.wait()
    assert ends(web)[-1] == ("exec", ["sleep", "51"], 130, "SIGINT", False)


def test_the_console_outlives_its_machine_and_is_followed_over_a_restart(web: Live) -> None:
    def say(word: str) -> None:
        web.box("exec", "web", "--", "sh", "-c", f"echo {word} >/dev/console")

    say("one-$(hostname)")
    assert web.box("logs", "web", "--console").stdout.endswith(b"one-web\n")
    # It was read from the VMM once, and is there again.
    say("'\033[2Jtwo'")
    said = web.box("logs", "web", "--console").stdout
    assert b"one-web\n" in said
    assert said.endswith(b"\\x1b[2Jtwo\n")
    follower = web.start("logs", "web", "--console", "-f", "--tail", "1", stdout=subprocess.PIPE)
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"\\x1b[2Jtwo\n"
    say("three")
    assert follower.stdout.readline() == b"three\n"
    say("four")
    web.box("down", "web")
    assert b"four" in kept(web)
    web.box("up", "web")
    say("five")
    shown = b""
    while not shown.endswith(b"five\n"):
        shown += follower.stdout.readline()
    assert b"four\n" in shown
    follower.send_signal(signal.SIGINT)
    assert follower.wait(30) == 130
    follower.stdout.close()

    # A flood is bounded by the ring, and commands go on.
    web.box("exec", "web", "--", "sh", "-c", "yes | head -c 70000 >/dev/console")
    before = len(kept(web))
    web.box("logs", "web", "--console", "--tail", "1")
    assert 60_000 < len(kept(web)) - before <= 65536

    # A VMM that does not answer delays the end by a second.
    say("lost")
    os.kill(web.pid("web"), signal.SIGSTOP)
    start = time.monotonic()
    done = web.box("logs", "web", "--console", "--tail", "1")
    assert time.monotonic() - start < 30
    assert b"what is shown is older" in done.stderr
    os.kill(web.pid("web"), signal.SIGCONT)
    web.box("down", "web")
    assert web.leftovers() == []
