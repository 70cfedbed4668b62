"""The agent as the first process of a real guest."""

from __future__ import annotations

import contextlib
import json
import platform
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reconciler.guest import protocol
from reconciler.guest.channel import Session, claim_port
from reconciler.guest.protocol import UNCLAIMED_TOKEN, Claim, Exec, Exit, Limit, Size
from reconciler.images.initrd import build_initrd
from reconciler.images.kernel import Kernel, fetch_kernel
from reconciler.images.rootfs import build_image

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="microvm is an x86 machine"),
]

BOOT_SECONDS = 90.0
# Without the last two the kernel waits for a clock that an emulator does not have.
COMMAND_LINE = (
    "console=ttyS0 quiet loglevel=1 reboot=t panic=-1 random.trust_cpu=on"
    " tsc_early_khz=2100000 lpj=4000000"
)
DATA_BYTES = 16 << 20


@dataclass(frozen=True)
class Parts:
    """What the guests of this module are made of."""

    kernel: Kernel
    initrd: Path
    root: Path


@dataclass
class Vm:
    """A running QEMU with its sockets in `directory`."""

    process: subprocess.Popen[bytes]
    directory: Path
    token: bytes = field(default_factory=lambda: secrets.token_bytes(protocol.TOKEN_SIZE))

    @property
    def console(self) -> str:
        return (self.directory / "console").read_text(errors="replace")

    def first_ready(self) -> protocol.Ready:
        with self._unclaimed() as session:
            return session.ready

    def claim(self, *, mount_data: bool = False) -> None:
        claim = Claim(
            token=self.token,
            entropy=secrets.token_bytes(protocol.ENTROPY_SIZE),
            realtime_ns=time.time_ns(),
            machine_id=bytes(range(protocol.MACHINE_ID_SIZE)),
            hostname="guest-1",
            mount_data=mount_data,
        )
        with self._unclaimed() as session:
            session.claim(claim)

    @contextlib.contextmanager
    def _unclaimed(self) -> Iterator[Session]:
        with contextlib.ExitStack() as stack:
            sock = stack.enter_context(claim_port(self.directory, range(1)))
            yield stack.enter_context(Session(sock, UNCLAIMED_TOKEN, BOOT_SECONDS))

    @contextlib.contextmanager
    def session(self, port: int = 0) -> Iterator[Session]:
        with contextlib.ExitStack() as stack:
            sock = stack.enter_context(claim_port(self.directory, range(port, port + 1)))
            yield stack.enter_context(Session(sock, self.token))

    def shell(self, script: str, *, user: str = "", timeout_ms: int = 0) -> tuple[Exit, str]:
        output = bytearray()
        with self.session() as session:
            end = session.exec(
                ["sh", "-c", script],
                {},
                stdin=None,
                stdout=output.extend,
                stderr=output.extend,
                user=user,
                timeout_ms=timeout_ms,
            )
        return end, output.decode()


class Qmp:
    """Just enough of QEMU's control protocol."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._stream = self._socket.makefile("rw")
        self._stream.readline()
        self.execute("qmp_capabilities")

    def execute(self, command: str, **arguments: object) -> dict[str, object]:
        self._stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._stream.flush()
        while True:
            answer = json.loads(self._stream.readline())
            assert "error" not in answer, answer
            if "return" in answer:
                result: dict[str, object] = answer["return"]
                return result

    def wait_for(self, query: str, *statuses: str) -> None:
        while self.execute(query).get("status") not in statuses:
            time.sleep(0.01)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


@contextlib.contextmanager
def running_vm(parts: Parts, *extra: str, append: str = "") -> Iterator[Vm]:
    directory = Path(tempfile.mkdtemp(prefix="box-vm-", dir="/tmp"))
    argv: list[str | Path] = [
        *("qemu-system-x86_64", "-M", "microvm,acpi=on", "-accel", "tcg,tb-size=64"),
        *("-m", "256", "-smp", "2", "-nodefaults", "-no-user-config", "-display", "none"),
        *("-no-reboot", "-serial", f"file:{directory}/console"),
        *("-qmp", f"unix:{directory}/qmp,server=on,wait=off"),
        *("-kernel", parts.kernel.path, "-initrd", parts.initrd),
        *("-append", f"{COMMAND_LINE} {append}"),
        *("-blockdev", f"driver=file,node-name=root,read-only=on,filename={parts.root}"),
        *("-device", "virtio-blk-device,drive=root", "-device", "virtio-serial-device"),
        *extra,
    ]
    for port in range(16):
        argv += ["-chardev", f"socket,id=c{port},path={directory}/p{port},server=on,wait=off"]
        argv += ["-device", f"virtserialport,chardev=c{port},name=box.{port}"]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    try:
        while not (directory / "p15").exists():
            assert process.poll() is None
            time.sleep(0.01)
        yield Vm(process, directory)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(directory)


def data_disk(path: Path) -> list[str]:
    return [
        *("-blockdev", f"driver=file,node-name=data,filename={path}"),
        *("-device", "virtio-blk-device,drive=data"),
    ]


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory, agent_binary: Path) -> Parts:
    home = tmp_path_factory.mktemp("home")
    kernel = fetch_kernel(home, lambda message: None)
    image = build_image(home, "builtin:busybox", lambda message: None)
    return Parts(kernel, build_initrd(home, kernel, agent_binary), image.path)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    path = tmp_path / "data.img"
    with path.open("wb") as file:
        file.truncate(DATA_BYTES)
    subprocess.run(["mkfs.ext4", "-q", path], check=True)
    return path


@pytest.fixture(scope="module")
def vm(parts: Parts) -> Iterator[Vm]:
    with running_vm(parts) as vm:
        vm.claim()
        yield vm


def test_a_guest_is_claimed_used_and_shut_down(parts: Parts, disk: Path) -> None:
    with running_vm(parts, *data_disk(disk)) as vm:
        ready = vm.first_ready()
        assert not ready.claimed
        assert ready.release == parts.kernel.release
        host_boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert ready.boot_id != host_boot_id
        vm.claim(mount_data=True)
        _, said = vm.shell("hostname; cat /etc/machine-id; date +%s; grep /data /proc/mounts")
        hostname, machine_id, seconds, mount = said.splitlines()
        assert hostname == "guest-1"
        assert machine_id == "000102030405060708090a0b0c0d0e0f"
        assert abs(int(seconds) - time.time()) < 5
        assert mount.startswith("/dev/vdb /data ext4 rw")
        with vm.session() as trapping, vm.session(port=1) as other:
            output = bytearray()

            def say_and_end(data: bytes) -> None:
                if not output:
                    other.shutdown(5000)
                output.extend(data)

            # Whether the signal ends sleep before sh is open: it holds no output.
            script = "exec 3>/data/last; sleep 300 >&3 2>&3 & "
            script += "trap 'echo bye >&3; echo done; exit 3' TERM; echo up; wait"
            end = trapping.exec(["sh", "-c", script], {}, stdin=None, stdout=say_and_end, stderr=2)
        assert (end, bytes(output)) == (Exit(3, 0, timed_out=False), b"up\ndone\n")
        assert vm.process.wait(timeout=30) == 0
        assert "box-agent" not in vm.console
    found = subprocess.run(["debugfs", "-R", "cat /last", disk], capture_output=True, check=True)
    assert found.stdout == b"bye\n"
    subprocess.run(["e2fsck", "-fn", disk], stdout=subprocess.DEVNULL, check=True)
    # What is only synced, and not unmounted, leaves a journal to be gone through.
    header = subprocess.run(["dumpe2fs", "-h", disk], capture_output=True, text=True, check=True)
    assert "needs_recovery" not in header.stdout


def test_a_restored_guest_is_claimed_anew(parts: Parts, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with running_vm(parts) as vm:
        boot_id = vm.first_ready().boot_id
        with contextlib.closing(Qmp(vm.directory / "qmp")) as qmp:
            qmp.execute("stop")
            qmp.execute("migrate", uri=f"exec:cat > {state}")
            qmp.wait_for("query-migrate", "completed")
    said = []
    for _ in range(2):
        with running_vm(parts, "-incoming", f"exec:cat {state}") as vm:
            with contextlib.closing(Qmp(vm.directory / "qmp")) as qmp:
                qmp.wait_for("query-status", "paused", "prelaunch", "running")
                qmp.execute("cont")
            assert vm.first_ready().boot_id == boot_id
            vm.claim()
            said.append(vm.shell("date +%s; head -c 16 /dev/urandom | od -An -tx1")[1].split("\n"))
            assert abs(int(said[-1][0]) - time.time()) < 5
    assert said[0][1] != said[1][1]


def test_a_read_only_root_has_writable_places(parts: Parts) -> None:
    with running_vm(parts, append="box.readonly=1") as vm:
        vm.claim()
        for place in ("/tmp", "/run", "/data", "/dev/shm"):
            assert vm.shell(f"touch {place}/x") == (Exit(0, 0, timed_out=False), "")
        end, said = vm.shell("touch /etc/x")
        assert end.code == 1
        assert "Read-only file system" in said


def test_a_guest_that_cannot_be_set_up_says_so_and_ends(parts: Parts, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    with empty.open("wb") as file:
        file.truncate(1 << 20)
    with running_vm(Parts(parts.kernel, parts.initrd, empty)) as vm:
        assert vm.process.wait(timeout=BOOT_SECONDS) == 0
        assert "box-agent: cannot mount the root image" in vm.console


def test_the_time_limit_ends_what_left_its_session(vm: Vm) -> None:
    end, _ = vm.shell("setsid sleep 371 & sleep 371", timeout_ms=500)
    assert end == Exit(-1, signal.SIGKILL, timed_out=True)
    assert "sleep 371" not in vm.shell("ps")[1].replace("sh -c", "")


def test_orphans_are_collected(vm: Vm) -> None:
    vm.shell("for i in 1 2 3 4 5 6 7 8; do (sleep 0.05 &); done; sleep 0.5")
    _, said = vm.shell("cat /proc/[0-9]*/stat")
    assert not [line for line in said.splitlines() if line.rpartition(")")[2].startswith(" Z")]


def test_the_agent_is_out_of_reach(vm: Vm) -> None:
    script = "ls /init /modules /image /memory; cat /dev/vport*; echo x > /proc/1/mem"
    _, said = vm.shell(script, user="nobody")
    assert said.count("No such file or directory") == 4
    assert said.count("Permission denied") == 17
    _, said = vm.shell("cat /dev/vport*")
    assert said.count("Device or resource busy") == 16


def test_a_client_gone_under_a_flood_leaves_nothing(vm: Vm) -> None:
    class Gone(Exception):
        pass

    for limit in (0, 30_000_000, 0, 1_000_000):
        received = 0

        def take(data: bytes) -> None:
            nonlocal received
            received += len(data)
            if received > limit:  # noqa: B023 - called within this round
                raise Gone

        with pytest.raises(Gone), vm.session() as session:
            session.exec(["cat", "/dev/zero"], {}, stdin=None, stdout=take, stderr=2)
        assert vm.shell("ps | grep -c '[z]ero'")[1] == "0\n"


def test_a_client_gone_for_good_takes_its_command_along(vm: Vm) -> None:
    with claim_port(vm.directory, range(3, 4)) as sock, Session(sock, vm.token):
        sock.settimeout(10)
        request = protocol.encode_exec(Exec(["sleep", "372"], {}))
        sock.sendall(request)
        while vm.shell("ps | grep -c '[s]leep 372'")[1] == "0\n":
            pass
    deadline = time.monotonic() + 10
    while vm.shell("ps | grep -c '[s]leep 372'")[1] != "0\n":
        assert time.monotonic() < deadline


def test_64_sessions_in_turn_and_16_at_once(vm: Vm) -> None:
    for number in range(64):
        assert vm.shell(f"echo {number}")[1] == f"{number}\n"
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(vm.session(port)) for port in range(16)]
        for session in sessions:
            session.ping()


def test_a_terminal_is_its_user_s(vm: Vm) -> None:
    shown = bytearray()
    with vm.session() as session:
        end = session.exec(
            ["sh", "-c", "stty size; tty; echo hi >/dev/tty; ulimit -Hn; stat -c %U.%g.%a $(tty)"],
            {},
            stdin=None,
            stdout=shown.extend,
            stderr=shown.extend,
            user="nobody",
            tty=Size(40, 132),
            rlimits=[Limit(7, 100, 1 << 20)],
        )
    assert end == Exit(0, 0, timed_out=False)
    said = shown.decode().split("\r\n")
    assert said == ["40 132", "/dev/pts/0", "hi", "1048576", "nobody.5.620", ""]


def test_a_terminal_needs_no_path(parts: Parts) -> None:
    with running_vm(parts) as vm:
        vm.claim()
        assert vm.shell("mount -t tmpfs none /dev/pts; rm /dev/ptmx; mkfifo /dev/ptmx")[0].code == 0
        shown = bytearray()
        with vm.session() as session:
            session.exec(["stty", "size"], {}, stdin=None, stdout=shown.extend,
                         stderr=shown.extend, tty=Size(40, 132))  # fmt: skip
        assert shown == b"40 132\r\n"


def test_a_fork_bomb_ends_with_its_time_limit(vm: Vm) -> None:
    end, _ = vm.shell("f() { f | f & }; f; sleep 60", timeout_ms=2000)
    assert end.timed_out
    assert vm.shell("echo alive")[1] == "alive\n"


CASES: dict[str, tuple[Callable[[str], bool], str]] = {
    "loopback is up": (lambda said: "LOOPBACK,UP" in said, "ip link show lo"),
    "files": (lambda said: said == "1024\n524288\n", "ulimit -Sn; ulimit -Hn"),
    "the descriptors' names": (lambda said: said == "hi\n", "echo hi > /dev/fd/1"),
    "a user's own output": (lambda said: said == "hi\n", "echo hi > /dev/stdout"),
    "shared memory": (lambda said: said == "", "touch /dev/shm/x"),
    "a terminal's multiplexer": (lambda said: said == "", "test -c /dev/ptmx -a -d /dev/pts"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_guest_has(vm: Vm, case: str) -> None:
    right, script = CASES[case]
    user = "nobody" if case == "a user's own output" else ""
    end, said = vm.shell(script, user=user)
    assert end.code == 0
    assert right(said), said
