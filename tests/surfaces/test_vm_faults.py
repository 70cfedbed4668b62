"""Signals, kills and broken files, against real VMs: what is left, and whether it goes on."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

import pytest

from tests.live import TIMEOUT_SECONDS, Live

pytestmark = [pytest.mark.vm, pytest.mark.root]

# Loading modules, launching, restoring, claiming, running, ending: as far as timing tells.
MOMENTS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7)


@pytest.fixture
def web(vms: Live) -> Live:
    """A sandbox whose next VM is restored and not booted, and which has its disk."""
    vms.declare("web")
    vms.box("run", "web", "--", "true")
    return vms


def test_an_impatient_user_leaves_nothing(web: Live) -> None:
    for moment in MOMENTS:
        child = web.start("run", "web", "--", "sleep", "60")
        time.sleep(moment)
        for signo in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            child.send_signal(signo)
            time.sleep(0.02)
        assert child.wait(TIMEOUT_SECONDS) != 0, moment
        assert web.leftovers() == [], moment


def test_an_interrupted_up_is_up_or_leaves_nothing(web: Live) -> None:
    for moment in MOMENTS:
        child = web.start("up", "web")
        time.sleep(moment)
        child.send_signal(signal.SIGTERM)
        if child.wait(TIMEOUT_SECONDS) == 0:
            assert web.box("exec", "web", "--", "echo", "up").stdout == b"up\n", moment
        elif web.leftovers():
            # It came after the VM was up, while that was being told.
            web.box("exec", "web", "--", "true")
        # With its record too: each time it is made anew.
        web.box("destroy", "web", status=None)
        assert web.leftovers() == [], moment


@pytest.mark.timeout(900)
def test_a_killed_up_is_repaired_by_down_and_by_up(web: Live) -> None:
    for moment in MOMENTS:
        for repair in ("down", "up"):
            child = web.start("up", "web")
            time.sleep(moment)
            child.kill()
            child.wait()
            web.box(repair, "web")
            if repair == "up":
                assert web.box("exec", "web", "--", "echo", "up").stdout == b"up\n", moment
                web.box("down", "web")
            assert web.leftovers() == [], moment
        web.box("destroy", "web")


def test_a_vm_with_a_broken_record_harms_no_other_and_is_ended_by_down(vms: Live) -> None:
    vms.declare("web")
    vms.declare("db")
    vms.box("up", "web")
    (vms.home / "run/web.json").write_text("{}")
    said = vms.box("exec", "web", "--", "true", status=125).stderr.decode()
    assert "box down web" in said
    assert vms.box("run", "db", "--", "echo", "fine").stdout == b"fine\n"
    vms.box("down", "web")
    assert vms.leftovers() == []


def test_a_vm_whose_policy_is_lost_is_not_taken_for_confined(vms: Live) -> None:
    vms.declare("web")
    vms.box("up", "web")
    (vms.home / "run/web/policy.json").unlink()
    said = vms.box("up", "web", status=125).stderr.decode()
    assert "web is not up" in said
    assert vms.leftovers() == []


def test_a_half_written_snapshot_is_none(vms: Live) -> None:
    vms.declare("web")
    vms.box("run", "web", "--", "true")
    for state in (vms.home / "snapshots").glob("*/state"):
        # As a power cut leaves it: the right length, and nothing in it from somewhere on.
        state.chmod(0o600)
        size = state.stat().st_size
        os.truncate(state, size // 3)
        os.truncate(state, size)
    assert vms.box("run", "web", "--", "echo", "booted").stdout == b"booted\n"
    assert vms.leftovers() == []


def test_mistakes_on_the_command_line_start_nothing(vms: Live) -> None:
    vms.declare("new")
    for words in (("new",), ("new", "--env", "X", "--", "a"), ("new", "--timeout", "x", "a")):
        vms.box("run", *words, status=125)
    for given in ("0", "-1", "nan", "inf", "86400.1", "x", ""):
        assert b"--wait takes" in vms.box("run", "new", f"--wait={given}", "a", status=125).stderr
    assert (
        b"one of the two" in vms.box("run", "new", "--wait=5", "--no-data", "a", status=125).stderr
    )
    vms.box("run", "other", "--wait=5", "a", status=125)
    assert not (vms.home / "sandboxes/other").exists()
    assert not (vms.home / "sandboxes/new").exists()


@pytest.mark.parametrize("parent", ["/mnt", "/srv"])
def test_a_home_where_the_bundle_would_lie(vms: Live, parent: str) -> None:
    """Reached by its own path, and by a link from elsewhere."""
    vms.declare("web")
    with (
        tempfile.TemporaryDirectory(prefix="box-test-", dir=parent) as real,
        tempfile.TemporaryDirectory(prefix="box-test-", dir="/tmp") as folder,
    ):
        shutil.copytree(vms.home / "kernels", Path(real) / "kernels")
        (Path(folder) / "link").symlink_to(real)
        try:
            for home in (Path(real), Path(folder) / "link"):
                it = Live(home, vms.folder)
                assert it.box("run", "web", "--", "echo", "ok").stdout == b"ok\n"
        finally:
            Live(Path(real), vms.folder).end()


def test_a_home_with_a_long_and_odd_name(vms: Live) -> None:
    vms.declare("web")
    with tempfile.TemporaryDirectory(prefix="box-test-", dir="/tmp") as folder:
        home = Path(folder) / ("x" * 200) / "a b,c=d:é"
        home.mkdir(mode=0o700, parents=True)
        shutil.copytree(vms.home / "kernels", home / "kernels")
        it = Live(home, vms.folder)
        try:
            assert it.box("run", "web", "--", "echo", "ok").stdout == b"ok\n"
            assert it.box("run", "web", "--", "echo", "again").stdout == b"again\n"
        finally:
            it.end()
