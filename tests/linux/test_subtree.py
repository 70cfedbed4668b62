from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from reconciler.linux.subtree import descendants, kill_containers

# A shell with a child, a grandchild that leads a session, and a PID namespace with two processes.
TREE = """
sleep 1001 &
setsid sh -c 'sleep 1002 & wait' &
unshare --pid --fork --kill-child \\
    sh -c 'sleep 1003 & trap "" TERM INT; echo ready; while :; do wait; done'
echo after
wait
"""


@pytest.fixture
def tree() -> Iterator[subprocess.Popen[str]]:
    argv = ["sh", "-c", TREE]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "ready\n"
        below = [shell.pid]
        try:
            yield shell
            below += descendants(shell.pid)
        finally:
            # Also when what finds them is broken: the group's end takes the namespace along.
            os.killpg(shell.pid, signal.SIGKILL)
            for pid in below[1:]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def commands(pids: frozenset[int]) -> list[str]:
    found = []
    for pid in pids:
        with open(f"/proc/{pid}/cmdline", "rb") as stream:  # noqa: PTH123
            found.append(stream.read().replace(b"\0", b" ").decode())
    return found


def sleeps(pid: int) -> set[str]:
    return {line.split()[1] for line in commands(descendants(pid)) if line.startswith("sleep ")}


def wait_for(pid: int, expected: set[str]) -> None:
    deadline = time.monotonic() + 60
    while sleeps(pid) != expected:
        assert time.monotonic() < deadline, sleeps(pid)
        time.sleep(0.01)


@pytest.mark.root
def test_all_that_is_below_a_process_is_found(tree: subprocess.Popen[str]) -> None:
    wait_for(tree.pid, {"1001", "1002", "1003"})
    below = descendants(tree.pid)
    assert tree.pid not in below
    assert os.getpid() not in below
    assert {tree.pid, *below} <= descendants(os.getpid())


@pytest.mark.root
def test_a_container_dies_whole_and_nothing_else_does(tree: subprocess.Popen[str]) -> None:
    wait_for(tree.pid, {"1001", "1002", "1003"})
    assert kill_containers(tree.pid) == 1
    assert tree.stdout is not None
    assert tree.stdout.readline() == "after\n", "what had started it goes on"
    wait_for(tree.pid, {"1001", "1002"})
    assert kill_containers(tree.pid) == 0


def test_a_process_that_is_gone_has_nothing_below() -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    assert descendants(child.pid) == frozenset()
    assert kill_containers(child.pid) == 0
