"""Taking a port: locks between processes, sockets with long paths, ends of every kind."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.errors import Busy, Missing
from reconciler.guest.channel import PORTS, NoAnswer, Session, claim_port


@pytest.fixture
def vm_directory() -> Iterator[Path]:
    """Yield a directory with three listening ports, at a path too long for a socket's address."""
    with tempfile.TemporaryDirectory() as short:
        directory = Path(short) / ("d" * 100)
        directory.mkdir()
        listeners = []
        for port in range(3):
            listener = socket.socket(socket.AF_UNIX)
            fd = os.open(directory, os.O_PATH)
            listener.bind(f"/proc/self/fd/{fd}/p{port}")
            os.close(fd)
            listener.listen(8)
            listeners.append(listener)
        yield directory
        for listener in listeners:
            listener.close()


def held_port(sock: socket.socket) -> str:
    return str(sock.getpeername()).rpartition("/")[2]


def test_each_client_has_a_port_of_its_own(vm_directory: Path) -> None:
    with claim_port(vm_directory) as first, claim_port(vm_directory) as second:
        assert (held_port(first), held_port(second)) == ("p1", "p2")
    with claim_port(vm_directory) as again:
        assert held_port(again) == "p1"


def test_commands_leave_a_port_to_the_one_that_ends_them(vm_directory: Path) -> None:
    with claim_port(vm_directory), claim_port(vm_directory):
        with pytest.raises(Busy), claim_port(vm_directory, timeout_seconds=0):
            pass
        with claim_port(vm_directory, PORTS, timeout_seconds=0) as sock:
            assert held_port(sock) == "p0"


def test_only_the_given_ports_are_taken(vm_directory: Path) -> None:
    with claim_port(vm_directory, range(1, 2)) as sock:
        assert held_port(sock) == "p1"


def test_who_finds_all_ports_taken_gets_the_next_free_one(vm_directory: Path) -> None:
    taken: list[str] = []

    def wait() -> None:
        with claim_port(vm_directory, range(1)) as sock:
            taken.append(held_port(sock))

    waiting = threading.Thread(target=wait)
    with claim_port(vm_directory, range(1)):
        waiting.start()
        time.sleep(0.1)
        assert taken == []
    waiting.join()
    assert taken == ["p0"]


def test_waiting_has_an_end(vm_directory: Path) -> None:
    with claim_port(vm_directory, range(1)), pytest.raises(Busy):  # noqa: SIM117 - one at a time
        with claim_port(vm_directory, range(1), timeout_seconds=0.1):
            pass


def test_a_port_is_free_once_its_holder_is_dead(vm_directory: Path) -> None:
    script = (
        "import pathlib, sys, time; from reconciler.guest.channel import claim_port\n"
        "with claim_port(pathlib.Path(sys.argv[1]), range(1)): print(flush=True); time.sleep(300)"
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", script, str(vm_directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(Busy), claim_port(vm_directory, range(1), timeout_seconds=0.05):
            pass
        holder.kill()
    with claim_port(vm_directory, range(1), timeout_seconds=60) as sock:
        assert held_port(sock) == "p0"


def test_the_lock_is_the_owner_s_alone_and_not_inherited(vm_directory: Path) -> None:
    with claim_port(vm_directory, range(1)):
        lock = vm_directory / "p0.lock"
        assert lock.stat().st_mode & 0o777 == 0o600
        fds = [fd for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
        ours = [int(fd.name) for fd in fds if fd.readlink() == lock]
        assert [fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC for fd in ours] == [1]


def test_a_planted_link_is_not_followed(vm_directory: Path, tmp_path: Path) -> None:
    (vm_directory / "p0.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"), claim_port(vm_directory, range(1)):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_vm_that_is_not_there_is_missing(vm_directory: Path, tmp_path: Path) -> None:
    with pytest.raises(Missing), claim_port(tmp_path / "none"):
        pass
    with pytest.raises(Missing), claim_port(vm_directory, range(7, 8)):
        pass


def test_a_vmm_that_is_slow_to_accept_is_waited_for(vm_directory: Path) -> None:
    """As many clients came and went as the socket's queue holds, and nobody took notice."""
    for _ in range(9):
        with claim_port(vm_directory, range(1)):
            pass
    with pytest.raises(Busy), claim_port(vm_directory, range(1), timeout_seconds=0.1):
        pass


def test_an_agent_that_keeps_silent_is_given_up(vm_directory: Path) -> None:
    with claim_port(vm_directory) as sock, pytest.raises(NoAnswer):
        Session(sock, bytes(32), timeout_seconds=0.1)
