"""A client that goes at any byte, in either direction, and the next one that comes at once."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reconciler.guest import protocol
from reconciler.guest.channel import Session
from reconciler.guest.protocol import Exec, Exit, encode_exec, encode_frame
from tests.guest.conftest import AgentStarter, make_claim

NONCE = bytes(range(16))
PIECE = encode_frame(protocol.STDIN, b"an old client's " * 200)
FLOODS = {
    "into it": ["sh", "-c", "cat >/dev/null"],
    "out of it": ["cat", "/dev/zero"],
    "both ways": ["cat"],
    "both streams": ["sh", "-c", "cat /dev/zero & cat /dev/zero >&2"],
}


@pytest.fixture(scope="module")
def door(start_agent: AgentStarter) -> Iterator[tuple[socket.socket, bytes]]:
    """Yield the socket of a claimed agent, and its token."""
    token = secrets.token_bytes(protocol.TOKEN_SIZE)
    with start_agent() as sock:
        with Session(sock, protocol.UNCLAIMED_TOKEN) as session:
            session.claim(make_claim(token))
        yield sock, token


def opening(token: bytes, flood: str) -> bytes:
    """All that the client would say: it is cut somewhere."""
    return token + NONCE + encode_exec(Exec(FLOODS[flood], {})) + PIECE * 30


@given(flood=st.sampled_from(sorted(FLOODS)), cut=st.integers(0, 100_000),
       taken=st.integers(0, 300_000), data=st.binary(max_size=300))  # fmt: skip
@example(flood="both ways", cut=0, taken=0, data=b"")
@example(flood="both ways", cut=31, taken=0, data=b"x")
@example(flood="both ways", cut=32, taken=0, data=b"x")
@example(flood="both ways", cut=47, taken=0, data=b"x")
@example(flood="out of it", cut=100_000, taken=300_000, data=b"x")
@settings(max_examples=200)
@pytest.mark.slow
def test_the_next_client_is_never_disturbed(
    door: tuple[socket.socket, bytes], flood: str, cut: int, taken: int, data: bytes
) -> None:
    """The socket stays, as a port's does: what the old client left in it comes first."""
    sock, token = door
    sock.settimeout(0.05)
    try:
        sock.sendall(opening(token, flood)[:cut])
        while taken > 0 and (got := sock.recv(min(taken, 1 << 16))):
            taken -= len(got)
    except TimeoutError:
        pass  # it says no more, or takes no more
    reading, writing = os.pipe()
    try:
        os.write(writing, data)
        os.close(writing)
        output = bytearray()
        with Session(sock, token) as session:
            end = session.exec(["cat"], {}, stdin=reading, stdout=output.extend, stderr=2)
    finally:
        os.close(reading)
    assert (end, bytes(output)) == (Exit(0, 0, timed_out=False), data)
