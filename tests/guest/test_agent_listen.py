"""The agent's TCP listener against strangers and crowds."""

from __future__ import annotations

import collections
import contextlib
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.guest import protocol
from reconciler.guest.channel import Session
from reconciler.guest.protocol import UNCLAIMED_TOKEN, Decoder
from tests.guest.conftest import make_claim
from tests.guest.tcp_agent import (
    TcpAgent,
    close_all,
    echo_works,
    new_client,
    read_to_end,
)
from tests.guest.test_agent import NONCE, exec_frame, next_frame

PENDING = 16
PROVE_SECONDS = 3.0
# What a busy machine adds.
SLACK_SECONDS = 20.0


def seconds_of(action: Callable[[], object]) -> float:
    start = time.monotonic()
    action()
    return time.monotonic() - start


def test_a_client_with_the_token_has_a_session(tcp: TcpAgent) -> None:
    with tcp.session() as session:
        assert session.ready.claimed
        session.ping()
    assert echo_works(tcp)


@pytest.mark.parametrize("right", [0, 1, 16, 31])
def test_a_wrong_token_gets_silence_and_no_hint(tcp: TcpAgent, right: int) -> None:
    """The end comes with the 48th byte, never before, whichever of them was the first wrong one."""
    wrong = tcp.token[:right] + bytes(byte ^ 1 for byte in tcp.token[right:])
    with tcp.connect() as sock:
        sock.sendall(wrong + NONCE[:-1])
        assert not select.select([sock], [], [], 0.2)[0]
        sock.sendall(NONCE[-1:])
        assert read_to_end(sock) == b""


@pytest.mark.parametrize(
    "wrong", [UNCLAIMED_TOKEN, bytes(32), b"GET / HTTP/1.1\r\nHost: box.local"]
)
def test_who_has_no_token_changes_nothing(tcp: TcpAgent, wrong: bytes, tmp_path: Path) -> None:
    claim = protocol.encode_claim(make_claim(bytes(32)))
    frames = claim + exec_frame("touch", str(tmp_path / "made"))
    shutdown = protocol.encode_frame(protocol.SHUTDOWN, bytes(4))
    with tcp.connect() as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(wrong + NONCE + frames + shutdown)
        assert read_to_end(sock) == b""
    assert echo_works(tcp)
    assert not (tmp_path / "made").exists()


def test_the_token_counts_only_as_the_first_bytes(tcp: TcpAgent) -> None:
    with tcp.connect() as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(b"x" + tcp.token + NONCE)
        assert read_to_end(sock) == b""


def test_the_token_may_come_byte_by_byte(tcp: TcpAgent) -> None:
    with tcp.connect() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in tcp.token + NONCE:
            sock.sendall(bytes([byte]))
        assert next_frame(sock, Decoder(NONCE)).type == protocol.READY


@pytest.mark.slow
def test_three_seconds_are_for_all_bytes_together(tcp: TcpAgent) -> None:
    """One who says nothing and one who says a byte now and then."""
    start = time.monotonic()
    with tcp.connect() as silent, tcp.connect() as dribbler:
        for byte in tcp.token[:2]:
            dribbler.sendall(bytes([byte]))
            early = select.select([silent, dribbler], [], [], 1.0)[0]
            assert not early or time.monotonic() - start >= PROVE_SECONDS - 0.1
        with contextlib.suppress(ConnectionError):
            dribbler.sendall(tcp.token[2:3])
        assert read_to_end(silent) == read_to_end(dribbler) == b""
    assert PROVE_SECONDS - 0.1 < time.monotonic() - start < PROVE_SECONDS + SLACK_SECONDS


def served_beside(session: Session, crowd: list[socket.socket]) -> bool:
    """Whether it was answered before one of the crowd was put out: it did not wait for that."""
    session.ping()
    return not select.select(crowd, [], [], 0)[0]


def test_sixteen_who_hold_on_hold_up_no_session(tcp: TcpAgent) -> None:
    # On a busy host all of it may take longer than they are held: then once more.
    for _ in range(10):
        with tcp.session() as session:
            session.ping()
            holders = [tcp.connect() for _ in range(PENDING)]
            try:
                if served_beside(session, holders):
                    return
            finally:
                close_all(holders)
    pytest.fail("the session waited for those who hold on")


@pytest.mark.slow
def test_sixteen_who_hold_on_keep_out_nobody(tcp: TcpAgent) -> None:
    with tcp.session():
        holders = [tcp.connect() for _ in range(PENDING)]
        try:
            assert seconds_of(lambda: new_client(tcp)) < PROVE_SECONDS + SLACK_SECONDS
            start = time.monotonic()
            assert {read_to_end(holder) for holder in holders} == {b""}
            assert time.monotonic() - start < PROVE_SECONDS + SLACK_SECONDS
        finally:
            close_all(holders)


def test_a_crowd_that_holds_on_is_passed_by(tcp: TcpAgent) -> None:
    """More than have a place, in the queue behind them too: each of them gives way in its turn."""
    crowd = []
    try:
        with tcp.session() as session:
            for _ in range(300):
                crowd.append(sock := socket.socket())
                sock.settimeout(0)
                sock.connect_ex(tcp.address)
            session.ping()
            assert seconds_of(lambda: new_client(tcp)) < PROVE_SECONDS + SLACK_SECONDS
    finally:
        close_all(crowd)


def test_at_most_sixteen_strangers_are_held(fresh_tcp: TcpAgent) -> None:
    with fresh_tcp.session() as session:
        session.ping()
        before = fresh_tcp.open_files
        strangers = []
        try:
            for _ in range(60):
                strangers.append(fresh_tcp.connect())
                session.ping()
                assert fresh_tcp.open_files <= before + PENDING
            assert fresh_tcp.open_files == before + PENDING
        finally:
            close_all(strangers)


def flood(agent: TcpAgent, opens: int, held: int, stop: threading.Event) -> None:
    """Open connections, the last `held` of which stay open, with some bytes in each third."""
    open_ones: collections.deque[socket.socket] = collections.deque()
    for number in range(opens):
        if stop.is_set():
            break
        sock = socket.socket()
        sock.settimeout(0)
        sock.connect_ex(agent.address)
        if number % 3 == 0:
            with contextlib.suppress(OSError):
                sock.send(agent.token[:20])
        open_ones.append(sock)
        if len(open_ones) > held:
            open_ones.popleft().close()
    while not stop.is_set() and opens > held and open_ones:
        open_ones.popleft().close()
    close_all(list(open_ones))


@pytest.mark.parametrize("held", [0, 300])
def test_ten_thousand_opens_starve_nobody(fresh_tcp: TcpAgent, held: int) -> None:
    pings, waits = [], []
    stop = threading.Event()
    crowd = threading.Thread(target=flood, args=(fresh_tcp, 10_000, held, stop))
    with fresh_tcp.session() as session:
        session.ping()
        new_client(fresh_tcp)
        before = fresh_tcp.private_kib
        crowd.start()
        try:
            while crowd.is_alive():
                pings.append(seconds_of(session.ping))
                waits.append(seconds_of(lambda: new_client(fresh_tcp)))
        finally:
            stop.set()
            crowd.join()
        assert fresh_tcp.private_kib <= before
        assert max(pings) < SLACK_SECONDS
        assert max(waits) < PROVE_SECONDS + SLACK_SECONDS


def test_a_stopped_agent_takes_up_where_it_was(fresh_tcp: TcpAgent) -> None:
    """As a guest that is paused: what came meanwhile is judged when it goes on."""
    with fresh_tcp.session() as session, fresh_tcp.connect() as waiting:
        session.ping()
        fresh_tcp.process.send_signal(signal.SIGSTOP)
        try:
            waiting.sendall(fresh_tcp.token + NONCE)
            with fresh_tcp.connect() as late:
                late.sendall(fresh_tcp.token[:40])
        finally:
            fresh_tcp.process.send_signal(signal.SIGCONT)
        assert next_frame(waiting, Decoder(NONCE)).type == protocol.READY
        session.ping()
