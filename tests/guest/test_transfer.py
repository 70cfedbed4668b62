"""Commands through the real agent: bytes, ends, signals, and who may hold up whom."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.errors import BoxError
from reconciler.guest import protocol
from reconciler.guest.channel import Session
from reconciler.guest.protocol import Exit, ProtocolError
from reconciler.guest.transfer import ChannelClosed

MIB = 1 << 20


class Output:
    def __init__(self) -> None:
        self.out = b""
        self.err = b""

    def take_out(self, data: bytes) -> None:
        self.out += data

    def take_err(self, data: bytes) -> None:
        self.err += data


def run(
    session: Session,
    *argv: str,
    stdin: int | None = None,
    env: dict[str, str] | None = None,
    timeout_ms: int = 0,
    user: str = "",
    cwd: str = "",
) -> tuple[Exit, Output]:
    output = Output()
    end = session.exec(
        argv,
        env or {},
        stdin=stdin,
        stdout=output.take_out,
        stderr=output.take_err,
        timeout_ms=timeout_ms,
        user=user,
        cwd=cwd,
    )
    return end, output


@contextlib.contextmanager
def file_of(data: bytes) -> Iterator[int]:
    fd = os.memfd_create("stdin")
    try:
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


def ended(code: int) -> Exit:
    return Exit(code, 0, timed_out=False)


def test_output_is_told_apart_and_exact(session: Session) -> None:
    end, output = run(session, "sh", "-c", r"printf '\000\001\377\033[31m'; printf 'no' >&2")
    assert end == ended(0)
    assert (output.out, output.err) == (b"\x00\x01\xff\x1b[31m", b"no")


def test_input_is_exact_and_ends(session: Session) -> None:
    with file_of(b"\x00\x01\x02\xff") as fd:
        end, output = run(session, "od", "-An", "-tx1", stdin=fd)
    assert end == ended(0)
    assert output.out.split() == [b"00", b"01", b"02", b"ff"]


def test_no_input_is_an_empty_one(session: Session) -> None:
    assert run(session, "wc", "-c")[1].out.strip() == b"0"


def test_64_mib_through_a_command_are_the_same(session: Session) -> None:
    data = os.urandom(64 * MIB)
    digest = hashlib.sha256()
    with file_of(data) as fd:
        end = session.exec(["cat"], {}, stdin=fd, stdout=digest.update, stderr=2)
    assert end == ended(0)
    assert digest.digest() == hashlib.sha256(data).digest()


def test_output_goes_to_descriptors_as_fast_as_they_are_read(session: Session) -> None:
    reading, writing = os.pipe()
    received = hashlib.sha256()

    def read_slowly() -> None:
        while data := os.read(reading, 100_000):
            received.update(data)
            time.sleep(0.001)

    reader = threading.Thread(target=read_slowly)
    reader.start()
    try:
        command = ["head", "-c", str(8 * MIB), "/dev/zero"]
        end = session.exec(command, {}, stdin=None, stdout=writing, stderr=2)
    finally:
        os.close(writing)
        reader.join()
        os.close(reading)
    assert end == ended(0)
    assert received.digest() == hashlib.sha256(bytes(8 * MIB)).digest()


def test_a_descriptor_that_is_written_to_keeps_its_flags(session: Session) -> None:
    reading, writing = os.pipe()
    try:
        session.exec(["echo", "hi"], {}, stdin=None, stdout=writing, stderr=writing)
        assert os.get_blocking(writing)
        assert os.read(reading, 10) == b"hi\n"
    finally:
        os.close(reading)
        os.close(writing)


def test_a_file_is_appended_to_where_it_stands(session: Session, tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        file.write(b"before\n")
        file.flush()
        session.exec(["echo", "hi"], {}, stdin=None, stdout=file.fileno(), stderr=2)
    assert (tmp_path / "out").read_bytes() == b"before\nhi\n"


def test_a_reader_that_goes_away_ends_the_call(session: Session) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        with pytest.raises(BrokenPipeError):
            session.exec(["yes"], {}, stdin=None, stdout=writing, stderr=2)
    finally:
        os.close(writing)


@pytest.mark.parametrize("code", [0, 1, 124, 143, 255])
def test_the_exit_code_is_the_command_s(session: Session, code: int) -> None:
    assert run(session, "sh", "-c", f"exit {code}")[0] == ended(code)


@pytest.mark.parametrize("name", ["TERM", "KILL", "PIPE"])
def test_an_end_by_signal_says_which(session: Session, name: str) -> None:
    signo = signal.Signals[f"SIG{name}"]
    assert run(session, "sh", "-c", f"kill -{name} $$")[0] == Exit(-1, signo, timed_out=False)


def test_a_missing_command_is_127_with_the_reason(session: Session) -> None:
    end, output = run(session, "no-such-command")
    assert end == ended(127)
    assert output.err == b"box: no-such-command: No such file or directory\n"


@pytest.mark.parametrize("command", ["/etc/passwd", "/etc"])
def test_what_cannot_be_executed_is_126_with_the_reason(session: Session, command: str) -> None:
    end, output = run(session, command)
    assert end == ended(126)
    assert output.err == f"box: {command}: Permission denied\n".encode()


def test_an_unknown_user_is_refused_and_never_root(session: Session) -> None:
    end, output = run(session, "id", user="no-such-user")
    assert end == ended(126)
    assert output.out == b""
    assert b"no such user" in output.err


def test_a_missing_directory_is_126_with_the_reason(session: Session) -> None:
    end, output = run(session, "true", cwd="/no/such/directory")
    assert end == ended(126)
    assert b"/no/such/directory" in output.err


def test_the_environment_is_the_given_one_and_three_defaults(session: Session) -> None:
    given = {"A": "x y", "B": "$HOME", "C": 'new\nline "q" é', "BIG": "v" * 8192}
    _, output = run(session, "env", "-0", env=given)
    found = dict(item.split("=", 1) for item in output.out.decode().split("\0") if item)
    assert found.keys() == {*given, "PATH", "HOME", "TERM"}
    assert given.items() <= found.items()


def test_given_variables_win_over_the_defaults(session: Session) -> None:
    _, output = run(session, "sh", "-c", "echo $TERM $HOME", env={"TERM": "dumb", "HOME": "/x"})
    assert output.out == b"dumb /x\n"


def test_arguments_arrive_as_they_are(session: Session) -> None:
    words = ["", "a b", "--", '"q"', "$HOME", "new\nline", "é", *map(str, range(1000))]
    _, output = run(session, "printf", r"%s\0", *words)
    assert output.out.decode().split("\0")[:-1] == words


def test_a_command_has_no_file_but_its_three(session: Session) -> None:
    script = "n=0; while [ $n -lt 64 ]; do [ -e /proc/$$/fd/$n ] && echo $n; n=$((n + 1)); done"
    _, output = run(session, "sh", "-c", script)
    assert output.out.split() == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    "script", ["echo hi; sleep 300 &", "echo hi; setsid sleep 300 & sleep 0.1"]
)
def test_a_child_that_holds_the_output_delays_nothing_and_is_killed(
    session: Session, script: str
) -> None:
    start = time.monotonic()
    end, output = run(session, "sh", "-c", script)
    # What the child would have written is not there, and that is told.
    assert (end, output.out) == (ended(0)._replace(truncated=True), b"hi\n")
    assert time.monotonic() - start < 60
    _, output = run(session, "sh", "-c", "ps -o args= --ppid $PPID")
    assert b"sleep 300" not in output.out


def test_input_that_never_ends_delays_nothing(session: Session) -> None:
    reading, writing = os.pipe()
    try:
        assert run(session, "echo", "hi", stdin=reading)[1].out == b"hi\n"
    finally:
        os.close(reading)
        os.close(writing)


def test_input_that_nobody_reads_delays_nothing(session: Session) -> None:
    with open("/dev/zero", "rb") as zeros:  # noqa: PTH123 - an endless file
        end, _ = run(session, "sleep", "0.3", stdin=zeros.fileno())
    assert end == ended(0)


def test_input_that_a_command_closed_is_swallowed(session: Session) -> None:
    with file_of(bytes(4 * MIB)) as fd:
        end, output = run(session, "sh", "-c", "exec <&-; sleep 0.3; echo done", stdin=fd)
    assert (end, output.out) == (ended(0), b"done\n")


def test_a_closed_descriptor_is_an_empty_input(session: Session) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    assert run(session, "wc", "-c", stdin=reading)[1].out.strip() == b"0"


def test_the_time_limit_kills_all_that_was_started(session: Session) -> None:
    start = time.monotonic()
    reading, writing = os.pipe()
    try:
        end, _ = run(session, "sh", "-c", "setsid sleep 300 & sleep 300", stdin=reading,
                     timeout_ms=300)  # fmt: skip
    finally:
        os.close(reading)
        os.close(writing)
    assert end == Exit(-1, signal.SIGKILL, timed_out=True)
    assert 0.2 < time.monotonic() - start < 60


def test_a_signal_reaches_the_whole_command(session: Session) -> None:
    threading.Timer(0.3, session.signal, [signal.SIGINT]).start()
    end, _ = run(session, "sh", "-c", "sleep 300; exit 5")
    assert end == Exit(-1, signal.SIGINT, timed_out=False)


def test_a_signal_may_be_sent_from_a_handler(session: Session) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: session.signal(signal.SIGTERM))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        end, output = run(session, "sh", "-c", "trap 'echo bye; exit 3' TERM; sleep 300")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert (end, output.out) == (ended(3), b"bye\n")


def test_a_signal_sent_at_once_is_not_lost(session: Session) -> None:
    for _ in range(20):
        session.signal(signal.SIGKILL)
        assert run(session, "sleep", "300")[0] == Exit(-1, signal.SIGKILL, timed_out=False)


def test_many_commands_follow_each_other(session: Session) -> None:
    for number in range(100):
        assert run(session, "echo", str(number))[1].out == b"%d\n" % number


def test_orphans_are_collected(session: Session) -> None:
    for _ in range(20):
        run(session, "sh", "-c", "sh -c 'sleep 0.01' & sleep 0.02 & true")
    _, output = run(session, "sh", "-c", "ps -o stat= --ppid $PPID")
    assert b"Z" not in output.out


class FakeAgent(threading.Thread):
    """The other end of a socket: answers the handshake, then a command with given bytes."""

    def __init__(self, sock: socket.socket, answer: bytes) -> None:
        super().__init__()
        self._sock = sock
        self._answer = answer

    def run(self) -> None:
        with self._sock:
            nonce = self._sock.recv(4096)[protocol.TOKEN_SIZE :]
            payload = b"\x01\x00\x01\x00" + b"a\0b\0c\0d\0e\0"
            self._sock.sendall(nonce + protocol.encode_frame(protocol.READY, payload))
            self._sock.recv(4096)
            self._sock.sendall(self._answer)
            if self._answer:
                with contextlib.suppress(ConnectionResetError):
                    while self._sock.recv(4096):
                        pass


STARTED = protocol.encode_frame(protocol.STARTED, bytes(4))
EXITED = protocol.encode_frame(protocol.EXIT, bytes(12))


@contextlib.contextmanager
def session_with_fake(answer: bytes) -> Iterator[Session]:
    """Yield a session with an agent that answers a command with these bytes, or hangs up."""
    ours, theirs = socket.socketpair()
    fake = FakeAgent(theirs, answer)
    fake.start()
    try:
        with ours, Session(ours, bytes(protocol.TOKEN_SIZE)) as session:
            yield session
    finally:
        fake.join()


@pytest.mark.parametrize(
    "answer",
    [
        protocol.encode_frame(protocol.STDOUT, b"x"),  # before STARTED
        EXITED,
        STARTED + STARTED,
        STARTED + protocol.encode_frame(protocol.PONG),
        STARTED + protocol.encode_frame(protocol.CLAIMED),
        STARTED + protocol.encode_frame(protocol.STDIN_ACK, struct.pack("<I", 1)),
        STARTED + EXITED + protocol.encode_frame(protocol.STDOUT, b"x"),
        STARTED + EXITED + EXITED,
        STARTED + b"\x88\x00\x00\x00\xff\xff\xff\xff",
    ],
)
def test_what_was_not_asked_for_is_refused(answer: bytes) -> None:
    with session_with_fake(answer) as session, pytest.raises(ProtocolError):
        run(session, "true")


def test_an_error_of_the_agent_is_told_in_its_words() -> None:
    answer = protocol.encode_frame(protocol.ERROR, b"\x0b\0\0\0no \x1b[31m")
    with session_with_fake(answer) as session, pytest.raises(BoxError) as caught:
        run(session, "true")
    assert caught.value.details == "no \\x1b[31m (Resource temporarily unavailable)"


@pytest.mark.slow
def test_a_guest_that_ignores_the_time_limit_is_left() -> None:
    with session_with_fake(STARTED) as session:
        end, _ = run(session, "true", timeout_ms=1)
    assert end == Exit(-1, signal.SIGKILL, timed_out=True)


def test_a_vm_that_dies_is_told() -> None:
    with session_with_fake(b"") as session, pytest.raises(ChannelClosed):
        run(session, "true")
