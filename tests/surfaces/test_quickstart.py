"""`quickstart` and `setup` through the real command line."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.linux import subids
from tests.live import Live, live

pytestmark = [pytest.mark.vm, pytest.mark.root]


@pytest.fixture(autouse=True)
def _ids_as_before() -> Iterator[None]:
    """Root keeps no IDs that a quickstart of a test gave it."""
    before = subids.ranges_of(subids.read_tables(), "root", 0)
    yield
    after = subids.ranges_of(subids.read_tables(), "root", 0)
    for option, old, new in (
        ("--del-subuids", before.uids, after.uids),
        ("--del-subgids", before.gids, after.gids),
    ):
        for each in set(new) - set(old):
            given = f"{each.start}-{each.end - 1}"
            subprocess.run(["usermod", option, given, "root"], check=True, timeout=60)


@pytest.fixture
def fresh() -> Iterator[Live]:
    """An empty home: no kernel, no image, nothing."""
    with live() as it:
        yield it


def test_from_an_empty_home_to_a_confined_sandbox(fresh: Live) -> None:
    fresh.declare("web")
    first = fresh.box("quickstart", "--yes")
    out = first.stdout.decode()
    assert f"Linux web {next((fresh.home / 'kernels').iterdir()).name} " in out
    assert f"boot ID {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}" in out
    facts = out.split("verdict")[1].split()
    assert facts[0] == facts[2] != "0"
    assert "NOT SO" not in out
    assert fresh.vm("web").incarnation == 1
    own = subids.ranges_of(subids.read_tables(), "root", 0)
    assert sum(each.size >> 16 for each in own.uids) >= 16

    # Again: nothing is brought, nothing restarted.
    again = fresh.box("quickstart")
    assert b"missing" not in again.stderr
    assert b"quickstart:" not in again.stderr
    assert fresh.vm("web").incarnation == 1
    assert b"What confines web:" in again.stdout


def test_without_a_terminal_nothing_is_done_unasked(fresh: Live) -> None:
    fresh.declare("web")
    done = fresh.box("quickstart", status=125)
    assert b"guest's kernel" in done.stderr
    assert b"quickstart --yes" in done.stderr
    assert not (fresh.home / "kernels").exists()
    assert fresh.leftovers() == []


def test_a_folder_that_is_not_there(fresh: Live) -> None:
    done = fresh.box("quickstart", "--yes", "/no/such/folder", status=125)
    assert b"no folder /no/such/folder" in done.stderr
    assert not (fresh.home / "kernels").exists()


def test_one_bad_boxfile_is_said_and_the_rest_runs(vms: Live) -> None:
    vms.declare("bad", "version: 1\nbase: builtin:busybox\nnetwrok: none\n")
    vms.declare("web")
    done = vms.box("quickstart", "--yes", status=125)
    assert b"netwrok" in done.stderr
    assert b"Linux web " in done.stdout


def test_a_folder_without_a_running_sandbox(vms: Live) -> None:
    done = vms.box("quickstart", "--yes")
    assert b"No sandbox of this folder is running." in done.stdout


def test_setting_up_roots_own_host_twice(vms: Live) -> None:
    vms.box("setup", "--user", "root")
    again = vms.box("setup", "--user", "0")
    assert again.stdout == b"root has all that takes root\n"
    nobody = vms.box("setup", "--user", "no-such-user", status=125)
    assert b"no-such-user" in nobody.stderr
