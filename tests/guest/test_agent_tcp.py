"""Sessions of the agent over TCP: their crowd, their end, their commands."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.errors import BoxError
from reconciler.guest import protocol
from reconciler.guest.channel import Session
from reconciler.guest.protocol import Decoder
from tests.guest.conftest import make_claim
from tests.guest.tcp_agent import (
    TcpAgent,
    echo_works,
    listening_agent,
    read_to_end,
    reset,
)
from tests.guest.test_agent import NONCE, exec_frame, is_alive, next_frame, start_raw, stdin_frame

SESSIONS = 16
CLOSERS = [socket.socket.close, reset]
# How long a connection is kept after its session, and what a busy machine adds.
LINGER_SECONDS = 3.0 + 30.0


@pytest.mark.slow
def test_sixteen_have_sessions_and_more_wait_and_are_told(tcp: TcpAgent) -> None:
    with contextlib.ExitStack() as stack:
        first = tcp.connect()
        stack.enter_context(Session(first, tcp.token))
        others = [stack.enter_context(tcp.session()) for _ in range(SESSIONS - 1)]
        with tcp.connect() as one_more, pytest.raises(BoxError) as caught:
            Session(one_more, tcp.token)
        assert "all sessions are taken" in str(caught.value.details)
        with tcp.connect() as next_one:
            next_one.sendall(tcp.token + NONCE)
            for session in others:
                session.ping()
            assert not select.select([next_one], [], [], 0)[0]
            reset(first)
            # At once: when its own three seconds are over it would hear an ERROR.
            assert next_frame(next_one, Decoder(NONCE)).type == protocol.READY


@pytest.mark.parametrize("close", CLOSERS)
def test_who_vanishes_while_proving_leaves_nothing(
    tcp: TcpAgent, close: Callable[[socket.socket], None]
) -> None:
    """After each byte of token and nonce, and of the frames behind them."""
    stream = tcp.token + NONCE + exec_frame("cat") + stdin_frame(b"for the old one")
    for cut in range(len(stream) + 1):
        sock = tcp.connect()
        sock.sendall(stream[:cut])
        close(sock)
        if cut % 8 == 0:
            assert echo_works(tcp)
    assert echo_works(tcp)


@pytest.mark.parametrize("close", CLOSERS)
@pytest.mark.parametrize("received", [0, 1, 16, 20, 200, 100_000, 3_000_000])
def test_who_vanishes_while_listening_leaves_nothing(
    tcp: TcpAgent, close: Callable[[socket.socket], None], received: int
) -> None:
    with tcp.connect() as sock:
        sock.sendall(tcp.token + NONCE + exec_frame("cat", "/dev/zero"))
        while received > 0:
            received -= len(sock.recv(min(received, 1 << 16)))
        close(sock)
    assert echo_works(tcp)


@pytest.mark.parametrize("close", [*CLOSERS, lambda sock: sock.shutdown(socket.SHUT_WR)])
def test_a_command_ends_with_its_connection(
    tcp: TcpAgent, close: Callable[[socket.socket], None]
) -> None:
    with tcp.connect() as sock:
        decoder = start_raw(sock, tcp.token)
        sock.sendall(exec_frame("sh", "-c", "setsid sleep 300 & echo $!; exec sleep 300"))
        leader = protocol.decode_number(next_frame(sock, decoder).payload)
        child = int(next_frame(sock, decoder).payload)
        assert is_alive(leader)
        assert is_alive(child)
        close(sock)
        assert echo_works(tcp)
    assert not is_alive(leader)
    assert not is_alive(child)


def test_a_second_token_in_the_stream_is_the_command_s_input(tcp: TcpAgent) -> None:
    data = (tcp.token + NONCE) * 3 + tcp.token
    with tcp.connect() as sock:
        decoder = start_raw(sock, tcp.token)
        end = protocol.encode_frame(protocol.STDIN_EOF)
        sock.sendall(exec_frame("cat") + stdin_frame(data) + end)
        said = b""
        while (frame := next_frame(sock, decoder)).type != protocol.EXIT:
            said += frame.payload if frame.type == protocol.STDOUT else b""
    assert said == data


def test_a_bad_frame_is_answered_before_the_end(tcp: TcpAgent) -> None:
    """The bytes behind it are not read as frames, and do not take back the answer."""
    with tcp.connect() as sock:
        decoder = start_raw(sock, tcp.token)
        sock.sendall(b"\xff" * 8 + exec_frame("echo", "not any more") + bytes(1 << 20))
        assert next_frame(sock, decoder).type == protocol.ERROR
        assert sock.recv(1) == b""


@pytest.mark.slow
def test_who_does_not_leave_after_an_error_is_put_out(fresh_tcp: TcpAgent) -> None:
    with fresh_tcp.session() as session, fresh_tcp.connect() as sock:
        session.ping()  # by then the other connection is accepted
        before = fresh_tcp.open_files
        decoder = start_raw(sock, fresh_tcp.token)
        sock.sendall(b"\xff" * 8)
        assert next_frame(sock, decoder).type == protocol.ERROR
        assert fresh_tcp.open_files == before  # it was there already, unproven
        deadline = time.monotonic() + LINGER_SECONDS
        while fresh_tcp.open_files >= before:
            session.ping()
            assert time.monotonic() < deadline


def test_a_claim_changes_the_token_and_ends_the_other_sessions(fresh_tcp: TcpAgent) -> None:
    old, new = fresh_tcp.token, bytes(range(32))
    with (
        fresh_tcp.connect() as other,
        fresh_tcp.connect() as half,
        fresh_tcp.session() as session,
    ):
        start_raw(other, old)
        half.sendall(old)
        session.claim(make_claim(new))
        assert read_to_end(other) == b""
        half.sendall(NONCE)
        assert read_to_end(half) == b""
        with fresh_tcp.connect() as replayed:
            replayed.sendall(old + NONCE)
            assert read_to_end(replayed) == b""
        session.ping()
    fresh_tcp.token = new
    assert echo_works(fresh_tcp)


def test_without_cgroups_one_command_runs_at_a_time(tcp: TcpAgent) -> None:
    with tcp.connect() as sock:
        decoder = start_raw(sock, tcp.token)
        sock.sendall(exec_frame("sleep", "300"))
        pid = protocol.decode_number(next_frame(sock, decoder).payload)
        with pytest.raises(BoxError) as caught, tcp.session() as second:
            second.exec(["true"], {}, stdin=None, stdout=1, stderr=2)
        assert "there is no cgroup" in str(caught.value.details)
        assert is_alive(pid)


def remove_cgroup(path: Path) -> None:
    """Remove one whose processes have ended, or end now."""
    deadline = time.monotonic() + LINGER_SECONDS
    (path / "cgroup.kill").write_text("1")
    while True:
        try:
            path.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
        else:
            return


@pytest.fixture
def cgroup() -> Iterator[int]:
    """A cgroup of cgroup2 for this test alone, as a descriptor."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mount = next((fields[1] for fields in mounts if fields[2] == "cgroup2"), None)
    if mount is None:
        pytest.skip("no cgroup2 is mounted here")
    path = Path(tempfile.mkdtemp(prefix="box-agent-", dir=mount))
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)
        for child in path.glob("box.*"):
            remove_cgroup(child)
        path.rmdir()


@pytest.mark.root
def test_with_cgroups_the_end_of_one_command_is_no_other_s(agent_binary: Path, cgroup: int) -> None:
    with listening_agent(agent_binary, cgroup=cgroup) as tcp, tcp.connect() as kept:
        pids = []
        for sock in (kept, tcp.connect()):
            decoder = start_raw(sock, tcp.token)
            sock.sendall(exec_frame("sh", "-c", "setsid sleep 300 & echo $!; exec sleep 300"))
            pids.append(protocol.decode_number(next_frame(sock, decoder).payload))
            pids.append(int(next_frame(sock, decoder).payload))
        sock.close()
        with tcp.session() as session:
            session.ping()
        while is_alive(pids[2]) or is_alive(pids[3]):
            assert is_alive(pids[0])
        assert is_alive(pids[0])
        assert is_alive(pids[1])


def timers_of(agent: TcpAgent) -> list[str]:
    """The timers of its connections, as the kernel lists them: 01 sends again, 02 asks."""
    port = f":{agent.address[1]:04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return [f[5] for f in map(str.split, lines) if f[1].endswith(port) and f[3] == "01"]


def test_a_silent_client_s_host_is_asked_whether_it_lives(tcp: TcpAgent) -> None:
    deadline = time.monotonic() + LINGER_SECONDS
    with tcp.session() as session:
        session.ping()
        while not any(timer.startswith("02:") for timer in timers_of(tcp)):
            assert time.monotonic() < deadline, timers_of(tcp)
