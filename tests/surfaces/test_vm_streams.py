"""A command's bytes through a real guest: all of them, in constant memory, whoever is slow."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.guest.channel import Session, claim_port
from reconciler.sdk import GuestFailed, Sandbox
from tests.live import Live, until

pytestmark = [pytest.mark.vm, pytest.mark.root]

MIB = 1 << 20
# No power of two, so that no loss or change of order by whole buffers goes unseen.
PATTERN = random.Random(7).randbytes(8 * MIB + 4099)  # noqa: S311 - not for a secret
ROUNDS = 128
GROWTH_KIB = 8 * 1024
RAM_BYTES = 256 * MIB
COMMANDS_AT_ONCE = 15


@pytest.fixture
def web(vms: Live) -> Live:
    """A home in which `web` is up."""
    vms.declare("web")
    vms.box("up", "web")
    return vms


def kib(pid: int, name: str) -> int:
    """A size in KiB that /proc/PID/status has; 0 when the process is over."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0)


def vmm_kib(pid: int) -> int:
    """The VMM's own memory: all but the guest's RAM and what the emulator translated."""
    own, counted = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, *words = line.split()
        if name.endswith(":"):
            own += int(words[0]) if counted and name == "Anonymous:" else 0
        else:
            begin, end = (int(each, 16) for each in name.split("-"))
            counted = end - begin != RAM_BYTES and "x" not in words[0]
    return own


def agent_kib(live: Live) -> int:
    """The most memory that the guest's agent has ever had."""
    said = live.box("exec", "web", "--", "grep", "VmHWM", "/proc/1/status").stdout
    return int(said.split()[1])


def received(live: Live, rounds: int) -> tuple[str, int, int]:
    """Have the guest say the pattern; return digest and size, and the client's memory in KiB."""
    script = f"i=0; while [ $i -lt {rounds} ]; do cat /tmp/pattern; i=$((i + 1)); done"
    client = live.start("exec", "web", "--", "sh", "-c", script, stdout=subprocess.PIPE)
    assert client.stdout is not None
    digest, size, most = hashlib.sha256(), 0, 0
    while data := os.read(client.stdout.fileno(), MIB):
        digest.update(data)
        if size // MIB != (size + len(data)) // MIB:
            most = max(most, kib(client.pid, "VmHWM"))
        size += len(data)
    client.stdout.close()
    assert client.wait(30) == 0
    return digest.hexdigest(), size, most


def sent(live: Live, rounds: int) -> tuple[str, int]:
    """Say the pattern to the guest; return the guest's digest and the client's memory in KiB."""
    client = live.start("exec", "web", "--", "sha256sum", stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE)  # fmt: skip
    assert client.stdin is not None
    assert client.stdout is not None
    for _ in range(rounds):
        client.stdin.write(PATTERN)
    most = kib(client.pid, "VmHWM")
    client.stdin.close()
    said = client.stdout.read().split()[0].decode()
    client.stdout.close()
    assert client.wait(30) == 0
    return said, most


def digest_of(rounds: int) -> str:
    digest = hashlib.sha256()
    for _ in range(rounds):
        digest.update(PATTERN)
    return digest.hexdigest()


def test_a_gibibyte_passes_whole_and_in_constant_memory(web: Live) -> None:
    """Out of the guest, and 32 MiB into it, which costs half as much."""
    web.box("exec", "web", "--", "sh", "-c", "cat >/tmp/pattern", stdin=PATTERN)
    vmm = web.pid("web")
    digest, size, client_before = received(web, 1)
    assert (digest, size) == (digest_of(1), len(PATTERN))
    said, sender_before = sent(web, 1)
    assert said == digest_of(1)
    before = [vmm_kib(vmm), agent_kib(web), client_before, sender_before]
    digest, size, client_after = received(web, ROUNDS)
    assert size == ROUNDS * len(PATTERN) > 1024 * MIB
    assert digest == digest_of(ROUNDS)
    said, sender_after = sent(web, 4)
    assert said == digest_of(4)
    after = [vmm_kib(vmm), agent_kib(web), client_after, sender_after]
    assert all(before)
    growth = [new - old for new, old in zip(after, before, strict=True)]
    assert max(growth) < GROWTH_KIB, (before, after)


def test_many_small_pieces_go_together_and_commands_run_as_usual(web: Live) -> None:
    """The agent does not interrupt a command for each write, and is not inherited from."""
    pieces: list[int] = []
    vm = web.vm("web")
    token = bytes.fromhex(vm.token)
    with claim_port(vm.directory(web.home)) as sock, Session(sock, token) as session:
        command = ["dd", "if=/dev/zero", "bs=512", "count=8192"]
        session.exec(command, {}, stdin=None, stdout=lambda data: pieces.append(len(data)),
                     stderr=lambda _: None)  # fmt: skip
    assert sum(pieces) == 4 * MIB
    assert len(pieces) < 8192 / 8
    stat = web.box("exec", "web", "--", "cat", "/proc/self/stat").stdout.split()
    nice, policy = int(stat[18]), int(stat[40])
    assert (nice, policy) == (0, os.SCHED_OTHER)


def test_who_does_not_read_holds_up_nobody_and_leaves_nothing(web: Live) -> None:
    """As many as there are channels for commands: some readers stopped, some clients."""
    trap = "trap 'echo bye >/data/bye; exit' TERM; while :; do echo y; done"
    clients = [web.start("exec", "web", "--", "sh", "-c", trap, stdout=subprocess.PIPE)]
    clients += [
        web.start("exec", "web", "--", "yes", stdout=subprocess.PIPE)
        for _ in range(COMMANDS_AT_ONCE - 1)
    ]
    for client in clients:
        assert client.stdout is not None
        assert client.stdout.read(1) == b"y"
    vmm = web.pid("web")
    before = vmm_kib(vmm)
    for client in clients[::2]:
        client.send_signal(signal.SIGSTOP)
    # One that ends makes room for the next.
    with clients.pop() as killed:
        killed.kill()
    assert web.box("exec", "web", "--", "echo", "hi").stdout == b"hi\n"
    assert vmm_kib(vmm) - before < GROWTH_KIB
    began = time.monotonic()
    web.box("down", "web")
    assert time.monotonic() - began < 10
    assert web.leftovers() == []
    for client in clients:
        client.send_signal(signal.SIGCONT)
        assert client.stdout is not None
        client.stdout.close()
    # The end by TERM is known where the reader took enough; else that machine or reader went.
    ends = {0, 125, 128 + signal.SIGPIPE, 128 + signal.SIGTERM}
    assert {client.wait(10) for client in clients} <= ends
    # It was asked before it was killed, by a way that no command can take.
    assert web.box("run", "web", "--", "cat", "/data/bye").stdout == b"bye\n"


def test_a_reader_that_stops_does_not_stop_the_time_limit(web: Live) -> None:
    client = web.start("exec", "web", "--timeout", "1", "--", "yes", stdout=subprocess.PIPE)
    assert client.wait(15) == 124
    assert client.stdout is not None
    client.stdout.close()
    assert web.box("exec", "web", "--", "pidof", "yes", status=1).stdout == b""


def test_64_commands_at_once_wait_for_each_other(web: Live) -> None:
    clients = [
        web.start("exec", "web", "--", "sh", "-c", f"echo {number}; sleep 0.1; exit {number}",
                  stdout=subprocess.PIPE)
        for number in range(64)
    ]  # fmt: skip
    said = [client.communicate(timeout=60)[0] for client in clients]
    assert said == [b"%d\n" % number for number in range(64)]
    assert [client.returncode for client in clients] == list(range(64))


def floods(live: Live) -> Iterator[subprocess.Popen[bytes]]:
    """Clients with gigabytes under way, out, in, both at once."""
    with open("/dev/zero", "rb") as zeros:  # noqa: PTH123 - an endless file
        while True:
            yield live.start("exec", "web", "--", "cat", "/dev/zero", stdout=subprocess.DEVNULL)
            yield live.start("exec", "web", "--", "sh", "-c", "cat >/dev/null",
                             stdin=zeros.fileno())  # fmt: skip
            yield live.start("exec", "web", "--", "cat", stdin=zeros.fileno(),
                             stdout=subprocess.DEVNULL)  # fmt: skip


def test_the_next_command_gets_its_own_bytes_whenever_the_last_client_was_killed(
    web: Live,
) -> None:
    """At first while it still starts, then ever later into its flood; the next one at once."""
    for number, client in zip(range(24), floods(web), strict=False):
        with pytest.raises(subprocess.TimeoutExpired):
            client.wait(0.03 * (number // 3 + 1))
        client.kill()
        data = os.urandom(1 + 5000 * number)
        done = web.box("exec", "web", "--", "cat", stdin=data)
        assert done.stdout == data
        assert done.stderr == b""
        client.wait()
    until(lambda: not web.box("exec", "web", "--", "pidof", "cat", status=None).stdout)


def test_the_guests_clock_goes_on_while_its_machine_is_held(web: Live) -> None:
    vmm = web.pid("web")
    os.kill(vmm, signal.SIGSTOP)
    try:
        until(lambda: state_of(vmm) == "T")
        time.sleep(4)
    finally:
        os.kill(vmm, signal.SIGCONT)
    before = int(time.time())
    said = int(web.box("exec", "web", "--", "date", "+%s").stdout)
    assert before - 1 <= said <= time.time() + 1


def test_a_machine_that_somebody_stopped_says_so_and_what_to_do(web: Live) -> None:
    """Not one that is frozen: box knows nothing of it beforehand."""
    vmm = web.pid("web")
    os.kill(vmm, signal.SIGSTOP)
    try:
        until(lambda: state_of(vmm) == "T")
        hint = f"its VMM was stopped, and not by box: `sudo kill -CONT {vmm}` lets it go on, "
        said = web.box("exec", "web", "--", "true", status=125).stderr.decode()
        assert said.endswith(f"hint: {hint}`box down web` ends it\n")
        with pytest.raises(GuestFailed) as caught:
            Sandbox("web", web.home).exec(["true"])
        assert (caught.value.hint or "").startswith(hint)
        assert b"Halted" in web.box("status").stdout
    finally:
        os.kill(vmm, signal.SIGCONT)
    assert b"Halted" not in web.box("status").stdout
    assert web.box("exec", "web", "--", "echo", "hi").stdout == b"hi\n"


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_machine_that_is_held_is_told_within_the_time_limit(web: Live) -> None:
    """The guest cannot keep the limit itself; what comes after goes on as if nothing had been."""
    vmm = web.pid("web")
    client = web.start("exec", "web", "--timeout", "5", "--", "cat", "/dev/zero",
                       stdout=subprocess.PIPE)  # fmt: skip
    assert client.stdout is not None
    assert client.stdout.read(1) == b"\0"
    os.kill(vmm, signal.SIGSTOP)
    try:
        while client.stdout.read(MIB):
            pass
        assert client.wait(60) == 124
    finally:
        os.kill(vmm, signal.SIGCONT)
    client.stdout.close()
    assert web.box("exec", "web", "--", "echo", "hi").stdout == b"hi\n"
