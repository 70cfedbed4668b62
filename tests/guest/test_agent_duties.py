"""What the first process of a guest owes it, seen in one real guest."""

from __future__ import annotations

import contextlib
import platform
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reconciler.guest import protocol
from reconciler.guest.channel import claim_port
from reconciler.guest.protocol import Claim, Exec, Exit
from reconciler.guest.transfer import ChannelClosed
from reconciler.images.initrd import build_initrd
from reconciler.images.kernel import fetch_kernel
from reconciler.images.rootfs import build_image
from tests.guest.test_agent import next_frame, start_raw
from tests.guest.test_agent_vm import Parts, Vm, running_vm

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="microvm is an x86 machine"),
]

GONE_SECONDS = 60
DEADLINE_MS = 2000
STRACE = Path("/usr/bin/strace")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, agent_binary: Path) -> Iterator[Vm]:
    home = tmp_path_factory.mktemp("home")
    kernel = fetch_kernel(home, lambda message: None)
    image = build_image(home, "builtin:busybox", lambda message: None)
    parts = Parts(kernel, build_initrd(home, kernel, agent_binary), image.path)
    with running_vm(parts) as vm:
        vm.claim()
        yield vm


def put(vm: Vm, file: Path, target: str) -> None:
    """Copy a file of this host into the guest, executable."""
    with file.open("rb") as source, vm.session() as session:
        end = session.exec(
            ["sh", "-c", f"cat > {target} && chmod 755 {target}"],
            {}, stdin=source.fileno(), stdout=1, stderr=2,
        )  # fmt: skip
    assert end.code == 0


def libraries_of(program: Path) -> list[Path]:
    """The files that ldd names, the loader last."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    found = [Path(path) for path in re.findall(r"(/\S+) \(0x", said)]
    return sorted(found, key=lambda path: path.name.startswith("ld-"))


def new_claim() -> Claim:
    return Claim(
        token=secrets.token_bytes(protocol.TOKEN_SIZE),
        entropy=secrets.token_bytes(protocol.ENTROPY_SIZE),
        realtime_ns=time.time_ns(),
        machine_id=bytes(16),
        hostname="",
        mount_data=False,
    )


def escaped(data: bytes) -> str:
    """As strace -xx prints it."""
    return "".join(f"\\x{byte:02x}" for byte in data)


@pytest.mark.skipif(not STRACE.exists(), reason="needs strace")
def test_a_claim_gives_its_entropy_to_the_kernel_before_it_is_answered(machine: Vm) -> None:
    """Seen by a tracer inside. No other source of randomness can stand in for what is seen here."""
    *libraries, loader = libraries_of(STRACE)
    for file in (STRACE, *libraries, loader):
        put(machine, file, f"/tmp/{file.name}")
    # Out of the port's cgroup: a claim ends all sessions but its own.
    machine.shell(
        "echo $$ > /sys/fs/cgroup/cgroup.procs;"
        f" /tmp/{loader.name} --library-path /tmp /tmp/strace -xx -s 512 -o /tmp/trace"
        " -e trace=ioctl,write -p 1 </dev/null >/dev/null 2>/tmp/said & echo $! > /tmp/tracer;"
        " until grep -q attached /tmp/said; do sleep 0.1; done"
    )
    claim = new_claim()
    with machine.session() as session:
        session.claim(claim)
    machine.token = claim.token
    _, trace = machine.shell(
        "pid=$(cat /tmp/tracer); kill $pid; while [ -d /proc/$pid ]; do sleep 0.1; done;"
        " cat /tmp/trace"
    )
    lines = trace.splitlines()
    claimed = escaped(bytes([protocol.CLAIMED, 0, 0, 0, 0, 0, 0, 0]))
    added = [i for i, line in enumerate(lines) if "RNDADDENTROPY" in line]
    reseeded = [i for i, line in enumerate(lines) if "RNDRESEEDCRNG" in line]
    answered = [i for i, line in enumerate(lines) if f'"{claimed}"' in line]
    assert len(added) == len(reseeded) == len(answered) == 1, trace
    assert added < reseeded < answered
    assert "entropy_count=512, buf_size=64" in lines[added[0]]
    assert escaped(claim.entropy) in lines[added[0]]
    assert lines[added[0]].endswith("= 0")
    assert lines[reseeded[0]].endswith("= 0")


def test_each_port_s_command_is_in_a_cgroup_of_its_own(machine: Vm) -> None:
    for port in (0, 7, 15):
        with machine.session(port) as session:
            output = bytearray()
            session.exec(["cat", "/proc/self/cgroup"], {}, stdin=None, stdout=output.extend,
                         stderr=2)  # fmt: skip
        assert output == f"0::/box.{port}\n".encode()


ORPHANS = "(sleep 0.01 &); (true &); (sh -c 'exit 99' &); exit"


def test_orphans_do_not_take_the_status_of_a_command(machine: Vm) -> None:
    """Sixteen commands end while the orphans of all of them do."""
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(machine.session(port)) for port in range(16)]
        pool = stack.enter_context(ThreadPoolExecutor(16))

        def code_of(port: int) -> int:
            argv = ["sh", "-c", f"{ORPHANS} {port}"]
            return sessions[port].exec(argv, {}, stdin=None, stdout=1, stderr=2).code

        for _ in range(3):
            assert list(pool.map(code_of, range(16))) == list(range(16))
    _, said = machine.shell("cat /proc/[0-9]*/stat")
    assert not [line for line in said.splitlines() if line.rpartition(")")[2].startswith(" Z")]


def wait_until_gone(vm: Vm, seconds: int) -> None:
    """Wait until no `sleep SECONDS` is left in the guest."""
    deadline = time.monotonic() + GONE_SECONDS
    while vm.shell(f"ps | grep -c '[s]leep {seconds}'")[1] != "0\n":
        assert time.monotonic() < deadline


# Its own session, its parent gone, its output elsewhere: nothing but the cgroup holds it.
FAR_CHILD = "(setsid sleep {0} </dev/null >/dev/null 2>&1 &);"


def test_a_far_child_ends_with_its_client(machine: Vm) -> None:
    with claim_port(machine.directory, range(3, 4)) as sock:
        decoder = start_raw(sock, machine.token)
        script = FAR_CHILD.format(381) + "echo up; sleep 381"
        sock.sendall(protocol.encode_exec(Exec(["sh", "-c", script], {})))
        assert next_frame(sock, decoder).type == protocol.STARTED
        assert next_frame(sock, decoder) == (protocol.STDOUT, b"up\n")
        while machine.shell("pidof sleep | wc -w")[1] != "2\n":
            pass
    wait_until_gone(machine, 381)


def test_a_far_child_ends_when_its_command_is_cancelled(machine: Vm) -> None:
    with machine.session(4) as session:

        def cancel(data: bytes) -> None:
            assert data == b"up\n"
            session.signal(signal.SIGTERM)

        script = FAR_CHILD.format(382) + "echo up; exec sleep 382"
        end = session.exec(["sh", "-c", script], {}, stdin=None, stdout=cancel, stderr=2)
    assert end == Exit(-1, signal.SIGTERM, timed_out=False)
    wait_until_gone(machine, 382)


def test_a_child_that_holds_the_output_ends_with_its_command(machine: Vm) -> None:
    start = time.monotonic()
    end, said = machine.shell("setsid sleep 383 & echo up")
    assert (end, said) == (Exit(0, 0, timed_out=False, truncated=True), "up\n")
    assert time.monotonic() - start < 60
    wait_until_gone(machine, 383)


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PLACES: dict[str, tuple[str, str, str]] = {
    "an environment": ("", "echo $PATH $HOME $TERM", f"{PATH} /root xterm\n"),
    "a user's environment": ("nobody", "echo $PATH $HOME $TERM", f"{PATH} /nonexistent xterm\n"),
    "a host name": ("", "hostname; cat /proc/sys/kernel/hostname", "guest-1\nguest-1\n"),
    "everybody's /tmp": ("nobody", "stat -c %a /tmp && touch /tmp/mine", "1777\n"),
    "everybody's /dev/shm": ("nobody", "stat -c %a /dev/shm && touch /dev/shm/mine", "1777\n"),
    "terminals": ("", "stat -f -c %T /dev/pts /dev/shm", "devpts\ntmpfs\n"),
    "itself on the network": (
        "",
        "ping -c 1 -W 5 127.0.0.1 | grep -o '1 packets received'",
        "1 packets received\n",
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_command_has(machine: Vm, place: str) -> None:
    user, script, expected = PLACES[place]
    end, said = machine.shell(f"{{ {script}; }} 2>/dev/null", user=user)
    assert (end.code, said) == (0, expected)


def test_the_end_comes_with_the_deadline_and_everything_is_told(machine: Vm) -> None:
    """The machine's last test. One that left its command says goodbye, one does not listen."""
    deaf = "trap '' TERM; echo up; while :; do sleep 1; done"
    polite = "trap 'echo the polite one > /dev/console; exit' TERM; echo up; sleep 384 & wait"
    with machine.session(5) as session, machine.session(6) as other:
        start = 0.0
        said = bytearray()

        def shut_down(data: bytes) -> None:
            nonlocal start
            said.extend(data)
            if said == b"up\nup\n":
                start = time.monotonic()
                other.shutdown(DEADLINE_MS)

        script = f'setsid sh -c "{polite}" & {deaf}'
        with contextlib.suppress(ChannelClosed):
            session.exec(["sh", "-c", script], {}, stdin=None, stdout=shut_down, stderr=2)
        assert machine.process.wait(timeout=100) == 0
        took = time.monotonic() - start
    # The guest takes the host's counter for one of 2.1 GHz: its seconds are not exactly ours.
    assert 0.7 * DEADLINE_MS / 1000 < took < DEADLINE_MS / 1000 + 60
    assert "the polite one" in machine.console
    assert "box-agent" not in machine.console
