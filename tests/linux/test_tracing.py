from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.confinement import filters
from reconciler.confinement.reading import Unreadable, Withheld
from reconciler.linux import tracing

pytestmark = pytest.mark.root

# A filter that refuses unshare(2) with 95 and allows the rest.
FILTER = """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
arch = {"x86_64": (0xC000003E, 272), "aarch64": (0xC00000B7, 97)}[os.uname().machine]
code = [(0x20, 0, 0, 0), (0x15, 0, 1, arch[1]), (6, 0, 0, 0x0005005F), (6, 0, 0, 0x7FFF0000)]
program = b"".join(struct.pack("<HBBI", *each) for each in code)
buffer = ctypes.create_string_buffer(program, len(program))
fprog = struct.pack("HxxxxxxP", len(code), ctypes.addressof(buffer))
libc.prctl(38, 1, 0, 0, 0)
assert libc.prctl(22, 2, fprog, 0, 0) == 0
"""
# A process of several threads under it.
FILTERED = (
    FILTER
    + """
import sys, threading
stop = threading.Event()
def spin():
    while not stop.is_set():
        pass
for target in (stop.wait, stop.wait, spin):
    threading.Thread(target=target, daemon=True).start()
print("ready", flush=True)
sys.stdin.buffer.readline()
stop.set()
"""
)
REFUSED = "unshare"


@contextmanager
def filtered() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(
        [sys.executable, "-c", FILTERED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield child
    finally:
        child.kill()
        child.wait(10)
        for stream in (child.stdin, child.stdout):
            assert stream is not None
            stream.close()


def tids(pid: int) -> list[int]:
    return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]


def states(pid: int) -> set[str]:
    """The letters of proc(5) of all threads: t is one that a tracer holds."""
    return {
        Path(f"/proc/{pid}/task/{tid}/stat").read_text().rpartition(") ")[2][0] for tid in tids(pid)
    }


def tracers(pid: int) -> set[str]:
    return {
        line.split()[1]
        for tid in tids(pid)
        for line in Path(f"/proc/{pid}/task/{tid}/status").read_text().splitlines()
        if line.startswith("TracerPid:")
    }


def becomes(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def read(pid: int, wanted: list[int]) -> dict[int, tracing.Programs]:
    directory = os.open(f"/proc/{pid}", os.O_DIRECTORY)
    try:
        return tracing.read_programs(directory, wanted)
    finally:
        os.close(directory)


def test_the_kernels_own_copy_is_read_from_every_thread() -> None:
    with filtered() as child:
        found = read(child.pid, tids(child.pid))
        assert len(found) == 4
        assert len(set(found.values())) == 1
        (programs,) = set(found.values())
        assert isinstance(programs, tuple)
        assert [len(each) for each in programs] == [4 * 8]
        machine = os.uname().machine
        everything = filters.allowed((), machine)
        assert set(everything) - set(filters.allowed(programs, machine)) == {REFUSED}


def test_nobody_is_left_stopped_or_traced() -> None:
    with filtered() as child:
        read(child.pid, tids(child.pid))
        assert "t" not in states(child.pid)
        assert tracers(child.pid) == {"0"}
        child.communicate(b"\n", timeout=10)
        assert child.returncode == 0


def test_a_reader_that_is_killed_meanwhile_lets_go() -> None:
    """It is killed with the threads stopped in its hand: they run on, and nobody traces them."""
    holder = """
import os, sys, time
from reconciler.linux import tracing
def forever(event, _):
    # Raised between the two calls that read a program.
    if event == "ctypes.addressof":
        print("stopped", flush=True)
        time.sleep(60)
sys.addaudithook(forever)
pid = int(sys.argv[1])
tracing.read_programs(os.open(f"/proc/{pid}", os.O_DIRECTORY), [pid])
"""
    with filtered() as child:
        reader = subprocess.Popen(
            [sys.executable, "-c", holder, str(child.pid)], stdout=subprocess.PIPE
        )
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"stopped\n"
        assert "t" in states(child.pid)
        reader.kill()
        reader.communicate(timeout=10)
        assert becomes(lambda: "t" not in states(child.pid) and tracers(child.pid) == {"0"})


def test_a_stopped_process_stays_stopped_and_can_go_on() -> None:
    with filtered() as child:
        child.send_signal(signal.SIGSTOP)
        assert becomes(lambda: states(child.pid) == {"T"})
        (programs,) = set(read(child.pid, [child.pid]).values())
        assert isinstance(programs, tuple)
        assert becomes(lambda: states(child.pid) == {"T"})
        child.send_signal(signal.SIGCONT)
        assert becomes(lambda: "T" not in states(child.pid))


def test_a_thread_of_another_process_is_not_read() -> None:
    with filtered() as child, filtered() as other:
        with pytest.raises(ProcessLookupError):
            read(child.pid, [other.pid])
        assert becomes(lambda: "t" not in states(other.pid))


def test_a_thread_that_is_gone_is_told_apart_from_one_that_cannot_be_read() -> None:
    with filtered() as child:
        pass
    directory = os.open("/proc/self", os.O_DIRECTORY)
    try:
        with pytest.raises(ProcessLookupError):
            tracing.read_programs(directory, [child.pid])
    finally:
        os.close(directory)


def test_a_thread_in_another_tracers_hand_is_unreadable() -> None:
    holder = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
assert libc.ptrace(0x4206, int(sys.argv[1]), None, None) == 0
print("seized", flush=True)
sys.stdin.buffer.readline()
"""
    with filtered() as child:
        other = subprocess.Popen(
            [sys.executable, "-c", holder, str(child.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert other.stdout is not None
        assert other.stdout.readline() == b"seized\n"
        found = read(child.pid, tids(child.pid))
        assert isinstance(found[child.pid], Unreadable)
        other.communicate(b"\n", timeout=10)
        assert isinstance(read(child.pid, [child.pid])[child.pid], tuple)


# Its C handler writes a byte for each signal that arrives; real-time signals are never merged.
COUNTING = (
    FILTER
    + """
import signal, time
os.set_blocking(1, False)
signal.set_wakeup_fd(1)
signal.signal(signal.SIGRTMIN, lambda *_: None)
os.write(1, b"x")
while True:
    time.sleep(0.0001)
"""
)
STORM = """
import os, signal, sys, time
for _ in range(int(sys.argv[2])):
    os.kill(int(sys.argv[1]), signal.SIGRTMIN)
    time.sleep(0.0002)
"""
SIGNALS = 3000


@contextmanager
def counting() -> Iterator[tuple[int, int]]:
    """The PID of a process that counts its signals, and where it tells of each."""
    child = subprocess.Popen([sys.executable, "-c", COUNTING], stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        assert os.read(child.stdout.fileno(), 1) == b"x"
        yield child.pid, child.stdout.fileno()
        assert child.poll() is None
    finally:
        child.kill()
        child.communicate(timeout=10)


def test_no_signal_that_comes_meanwhile_is_lost_and_none_ends_it() -> None:
    with counting() as (pid, pipe):
        # From another process: Popen.send_signal waits first, and is told of a child's stops.
        storm = subprocess.Popen([sys.executable, "-c", STORM, str(pid), str(SIGNALS)])
        reads = 0
        while storm.poll() is None:
            (found,) = read(pid, [pid]).values()
            assert isinstance(found, tuple)
            reads += 1
        assert storm.returncode == 0
        assert reads > 100
        received = b""
        while len(received) < SIGNALS:
            assert select.select([pipe], [], [], 10)[0], f"{SIGNALS - len(received)} are lost"
            received += os.read(pipe, SIGNALS)
        assert set(received) == {signal.SIGRTMIN}


def test_whoever_may_not_read_programs_stops_nobody() -> None:
    code = """
import os, sys
from reconciler.linux import tracing
pid = int(sys.argv[1])
print(tracing.read_programs(os.open(f"/proc/{pid}", os.O_DIRECTORY), [pid])[pid])
"""
    with filtered() as child:
        done = subprocess.run(
            ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", sys.executable,
             "-c", code, str(child.pid)],
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
    why = "content not read: that takes CAP_SYS_ADMIN, and a reader without a filter"
    assert done.stdout.strip() == str(Withheld(why))


def test_a_hundred_readings_leave_it_without_a_tracer() -> None:
    with filtered() as child:
        for _ in range(100):
            read(child.pid, tids(child.pid))
        assert tracers(child.pid) == {"0"}
