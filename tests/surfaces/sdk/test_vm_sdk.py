"""The Python surface with real guests."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engine import records
from reconciler.linux import files
from reconciler.sdk import DataHeld, GuestFailed, NotRunning, Result, Sandbox
from tests.interrupts import interrupted
from tests.live import DATA, SMALL, Live, until
from tests.surfaces.sdk.conftest import held
from tests.surfaces.sdk.test_page import PAGE, README

pytestmark = [pytest.mark.vm, pytest.mark.root]


@pytest.fixture
def web(vms: Live, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """A sandbox that is declared, in the home and folder that the environment names."""
    vms.declare("web")
    monkeypatch.setenv("BOX_HOME", str(vms.home))
    monkeypatch.setenv("BOX_DESIRED", str(vms.folder))
    yield Sandbox("web")
    assert vms.leftovers() == []


def writable_by_others(top: Path) -> list[Path]:
    """What lies in folders that others can enter, and can be written by them."""
    return [
        path
        for path in [top, *top.rglob("*")]
        if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o022
    ]


def running(box: Sandbox) -> bytes:
    """The command lines of the guest's processes."""
    return box.exec(["sh", "-c", "cat /proc/[0-9]*/cmdline"]).stdout


def test_a_block_brings_it_up_and_takes_it_down_and_leaves_no_trace_here(
    web: Sandbox, vms: Live
) -> None:
    os.umask(0)
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    before = held()
    with web as box:
        assert box.is_up()
        assert box.exec(["uname", "-s"]).check().text == "Linux\n"
        groups = vms.cgroups()
        assert groups
        assert not [path for path in groups if path.stat().st_mode & 0o022]
        box.write_file("/data/f", b"x" * 100_000)
        assert box.read_file("/data/f") == b"x" * 100_000
        with box.stream(["sleep", "12345"]):
            until(lambda: b"12345" in running(box))
        until(lambda: b"12345" not in running(box))
        said: list[Result] = []
        threads = [
            threading.Thread(target=lambda n=n: said.append(box.exec(["echo", str(n)])))
            for n in range(8)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sorted(each.text for each in said) == [f"{n}\n" for n in range(8)]
    assert not web.is_up()
    with pytest.raises(NotRunning):
        web.exec(["true"])
    assert os.umask(0o022) == 0
    assert held() == before
    assert handlers == [
        signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
    ]
    assert writable_by_others(vms.home) == []


def test_a_block_leaves_up_what_was_up_or_is_another_one_by_now(web: Sandbox, vms: Live) -> None:
    assert web.up()
    assert not web.up()
    with web as box, web as again:
        assert box is again
    assert web.is_up()
    with pytest.raises(DataHeld) as caught:
        web.run(["true"])
    assert caught.value.code == "data_held"
    assert web.down()
    assert not web.down()
    with web:
        vms.box("down", "web")
        vms.box("up", "web")
    assert web.is_up()
    pid = vms.pid("web")
    with web.stream(["sleep", "60"]) as process:
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(GuestFailed):
            process.wait()
    web.down()


def test_each_run_ends_its_own_machine_and_no_other(web: Sandbox, vms: Live) -> None:
    """One goes on after a second one of the same process has ended."""
    vms.box("build", "web")
    assert web.run(["sh", "-c", "echo kept >/data/f; cat"], stdin=b"in").stdout == b"in"
    said: list[Result] = []

    def slow() -> None:
        said.append(web.run(["sh", "-c", "sleep 60"], timeout=6))

    thread = threading.Thread(target=slow)
    thread.start()
    until(lambda: any(vm.identity for vm in records.vm_records(vms.home, "web")))
    assert web.run(["sh", "-c", "ls /data; exit 4"], with_data=False).exit_code == 4
    (vm,) = records.vm_records(vms.home, "web")
    assert vm.with_data
    # The slow one is told to stop in the only way there is: its time is over.
    thread.join()
    assert (said[0].timed_out, said[0].exit_code) == (True, 124)


# A socket that was just made and not noted yet is closed by Python, which says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("delay", [0.02, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5])
def test_an_interrupt_at_any_moment_of_a_run_leaves_nothing(
    web: Sandbox, vms: Live, delay: float
) -> None:
    vms.box("build", "web")
    before = held()
    with pytest.raises(KeyboardInterrupt), interrupted(delay):
        web.run(["sleep", "60"])
    assert vms.leftovers() == []
    # One that hits between open(2) and what would close it leaves a descriptor: Python has no way
    # to keep it out of there. Threads and children are another matter.
    descriptors, *others = held()
    assert (descriptors - before[0] <= 1, others) == (True, list(before[1:]))


def waiting(vms: Live) -> list[str]:
    """The VMs that wait, once nobody is filling the pool."""
    with files.locked(vms.home / "sandboxes" / "web" / "warm.lock", timeout_seconds=60):
        found = records.vm_records(vms.home, "web")
        return [vm.vm for vm in found if vm.kind == records.WARM and vm.ready]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_run_takes_a_waiting_vm_and_another_one_is_made_for_it(
    vms: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOX_DESIRED", str(vms.folder))
    vms.declare("web", SMALL + DATA + "state: built\nwarm: 1\n")
    vms.box("sync", str(vms.folder))
    until(lambda: len(waiting(vms)) == 1)
    box = Sandbox("web", vms.home)
    before, (first,) = held(), waiting(vms)
    taken = []
    ours, its = socket.socketpair()
    with_it = threading.Thread(target=lambda: taken.append(box.run(["cat"], stdin=its)))
    with_it.start()
    try:
        until(lambda: waiting(vms) == [])
        assert box.run(["hostname"], with_data=False).text == "web\n"
        # The first one's VM was not ended with the second one's.
        assert [vm.vm for vm in records.vm_records(vms.home, "web") if vm.with_data] == [first]
    finally:
        ours.close()
        with_it.join()
        its.close()
    assert taken[0].exit_code == 0
    assert held() == before
    until(lambda: len(waiting(vms)) == 1)
    for delay in (0.01, 0.03, 0.06, 0.1, 0.2, 0.5):
        with pytest.raises(KeyboardInterrupt), interrupted(delay):
            box.run(["sleep", "60"])
        assert [vm for vm in records.vm_records(vms.home, "web") if vm.kind == records.ONCE] == []
        assert held() == before
        until(lambda: len(waiting(vms)) == 1)


def test_each_example_of_the_page_and_the_readme_runs(
    web: Sandbox,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 6
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102 - our own page
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(compile(block.replace('"hello"', '"web"'), str(README), "exec"), {})  # noqa: S102 - same
    assert capsys.readouterr().out.endswith("\nSOME INPUT\n\n")
    assert (tmp_path / "services").read_bytes() == Path("/etc/services").read_bytes()
