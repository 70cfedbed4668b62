"""A command's input: who may share it, and what a command leaves unread."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.guest import protocol
from reconciler.guest.channel import Session
from reconciler.guest.protocol import Exec, Exit, encode_exec, encode_frame
from reconciler.guest.sources import Source
from tests.guest.test_hostile import EXITED, READY, STARTED, guest

KIB = 1024


@contextlib.contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    try:
        yield reading, writing
    finally:
        os.close(reading)
        with contextlib.suppress(OSError):
            os.close(writing)


@given(data=st.binary(max_size=4096))
@settings(max_examples=100)
def test_any_input_comes_back_to_the_byte(lasting_session: Session, data: bytes) -> None:
    output = bytearray()
    with pipe() as (reading, writing):
        os.write(writing, data)
        os.close(writing)
        end = lasting_session.exec(["cat"], {}, stdin=reading, stdout=output.extend, stderr=2)
    assert (end, bytes(output)) == (Exit(0, 0, timed_out=False), data)


def test_input_that_somebody_else_took_holds_up_nothing() -> None:
    """Poll said that there is some; by the time of reading it is another process's."""
    with pipe() as (reading, writing):
        with contextlib.closing(Source(reading)) as source:
            assert source.read(10) is None
            os.write(writing, b"x")
            assert source.read(10) == b"x"
            assert os.get_blocking(reading)
            os.close(writing)
            assert source.read(10) == b""
        os.fstat(reading)


def test_a_fifo_whose_writer_has_gone_is_at_its_end(session: Session) -> None:
    with pipe() as (reading, writing):
        os.close(writing)
        output = bytearray()
        session.exec(["wc", "-c"], {}, stdin=reading, stdout=output.extend, stderr=2)
    assert output.strip() == b"0"


def narrow(sock: socket.socket) -> None:
    """Let only a few KiB be under way."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)


def frames_of(data: bytes) -> list[tuple[int, bytes]]:
    """A client's frames. Fails where they are none."""
    frames, at = [], 0
    while at < len(data):
        kind, length = data[at], int.from_bytes(data[at + 4 : at + 8], "little")
        assert kind in range(1, 9)
        assert data[at + 1 : at + 4] == bytes(3)
        frames.append((kind, data[at + 8 : at + 8 + length]))
        at += 8 + length
    assert at == len(data)
    return frames


def test_a_command_that_leaves_its_input_in_the_middle_disturbs_not_the_next() -> None:
    """Its guest does not read until the next command is asked for."""
    heard = bytearray()
    asked = threading.Event()
    first, second = (encode_exec(Exec([word], {})) for word in ("first", "second"))

    def play(sock: socket.socket, nonce: bytes) -> None:
        sock.sendall(nonce + READY)
        while len(heard) < len(first) + 100:
            heard.extend(sock.recv(64))
        sock.sendall(STARTED + EXITED)
        asked.wait()
        while not heard.endswith(second + encode_frame(protocol.STDIN_EOF)):
            heard.extend(sock.recv(1 << 16))
        sock.sendall(STARTED + EXITED)

    with guest(play) as sock, Session(sock, bytes(32)) as session:
        narrow(sock)
        with open("/dev/zero", "rb") as zeros:  # noqa: PTH123 - an endless file
            session.exec(["first"], {}, stdin=zeros.fileno(), stdout=1, stderr=2)
        asked.set()
        session.exec(["second"], {}, stdin=None, stdout=1, stderr=2)
    kinds = [kind for kind, _ in frames_of(bytes(heard))]
    assert kinds[0] == protocol.EXEC
    assert set(kinds[1:-2]) == {protocol.STDIN}
    assert kinds[-2:] == [protocol.EXEC, protocol.STDIN_EOF]


def first_send(request: bytes) -> int:
    """How much of a request such a socket takes when nobody reads."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        narrow(ours)
        ours.settimeout(0)
        return ours.send(request)


def test_a_signal_that_comes_with_input_does_not_end_it() -> None:
    """What is unsent is one byte short of the most that may be, and both come at once."""
    heard = bytearray()
    signalled = threading.Event()
    left = 32 * KIB - 1
    # The socket takes whole pieces: a longer request has as much more left.
    request = Exec(["x" * (64 * KIB)], {})
    surplus = len(encode_exec(request)) - first_send(encode_exec(request)) - left
    request = request._replace(argv=["x" * (64 * KIB - surplus)])
    assert len(encode_exec(request)) - first_send(encode_exec(request)) == left

    def play(sock: socket.socket, nonce: bytes) -> None:
        sock.sendall(nonce + READY)
        signalled.wait()
        while not heard.endswith(encode_frame(protocol.STDIN_EOF)):
            heard.extend(sock.recv(1 << 16))
        sock.sendall(STARTED + EXITED)

    with pipe() as (reading, writing), guest(play) as sock, Session(sock, bytes(32)) as session:
        narrow(sock)

        def both(*_: object) -> None:
            # Poll begins anew behind a handler, and sees what it did all at once.
            os.write(writing, b"input")
            os.close(writing)
            session.signal(signal.SIGUSR1)
            signalled.set()

        before = signal.signal(signal.SIGALRM, both)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            session.carry_out(request, stdin=reading, stdout=1, stderr=2)
        finally:
            signal.signal(signal.SIGALRM, before)
    frames = frames_of(bytes(heard))
    assert (protocol.STDIN, b"input") in frames
    assert [kind for kind, _ in frames].count(protocol.STDIN_EOF) == 1
