"""`box ps` with a real guest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.live import SMALL, Live, until

pytestmark = [pytest.mark.vm, pytest.mark.root]


def listed(live: Live) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(live.box("ps", "web", "-o", "json").stdout)
    return found


def test_it_lists_what_runs_and_by_which_command(vms: Live) -> None:
    vms.declare("web", SMALL)
    assert b"web is not running" in vms.box("ps", "web", status=125).stderr
    vms.box("up", "web")
    [init] = listed(vms)
    assert (init["pid"], init["ppid"], init["uid"], init["port"]) == (1, 0, 0, None)

    evil = "evil\x1b[2J\nname"
    calls = [
        vms.start("exec", "web", "--", "sh", "-c", "sleep 40 & sleep 41 & wait"),
        vms.start("exec", "web", "-u", "nobody", "--", "sh", "-c", "sleep 50; true", evil),
    ]
    until(lambda: len([each for each in listed(vms) if each["name"] == "sleep"]) == 3)
    found = listed(vms)
    by_word = {each["argv"][-1]: each for each in found}
    assert by_word["40"]["port"] == by_word["41"]["port"] != by_word["50"]["port"]
    assert by_word["40"]["ppid"] == by_word["41"]["ppid"] != 1
    assert by_word["40"]["uid"] == 0
    assert by_word["50"]["uid"] == 65534
    assert all(each["rss_kib"] > 0 and each["elapsed_seconds"] < 600 for each in found)
    assert not {"kthreadd", "ps"} & {each["name"] for each in found}

    out = vms.box("ps", "web").stdout.decode()
    assert out.splitlines()[0].split() == "PID PPID UID STATE RSS ELAPSED EXEC COMMAND".split()
    assert len(out.splitlines()) == len(found) + 1
    assert all(line.isprintable() for line in out.splitlines())
    assert by_word[evil]["ppid"] == 1
    assert "evil\\x1b[2J\\x0aname" in out
    for call in calls:
        call.kill()
        call.wait()
