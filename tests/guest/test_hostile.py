"""The client at the other end of a guest that says whatever it likes, whenever it likes."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import signal
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reconciler.errors import BoxError
from reconciler.guest import protocol
from reconciler.guest.channel import NoAnswer, Session
from reconciler.guest.protocol import Exec, Exit, ProtocolError, encode_exec, encode_frame
from reconciler.guest.transfer import ChannelClosed

READY = encode_frame(protocol.READY, b"\x01\x00\x01\x00a\0b\0c\0d\0e\0")
STARTED = encode_frame(protocol.STARTED, bytes(4))
EXITED = encode_frame(protocol.EXIT, struct.pack("<iII", 7, 0, 0))
STDOUT = encode_frame(protocol.STDOUT, bytes(protocol.FRAME_MAX))
STDERR = encode_frame(protocol.STDERR, bytes(protocol.FRAME_MAX))
SMALL = encode_frame(protocol.STDOUT, b"x") * 4096
GRACE_SECONDS = 5.0
MIB = 1 << 20

Play = Callable[[socket.socket, bytes], None]


@contextlib.contextmanager
def guest(play: Play) -> Iterator[socket.socket]:
    """Our end of a socket where `play` is done with the other end and the session's nonce."""
    ours, theirs = socket.socketpair()

    def act() -> None:
        with theirs, contextlib.suppress(OSError):
            nonce = b""
            while len(nonce) < protocol.TOKEN_SIZE + protocol.NONCE_SIZE:
                nonce += theirs.recv(protocol.TOKEN_SIZE + protocol.NONCE_SIZE - len(nonce))
            play(theirs, nonce[protocol.TOKEN_SIZE :])

    acting = threading.Thread(target=act)
    acting.start()
    try:
        with ours:
            yield ours
    finally:
        acting.join()


def saying(pieces: Iterable[bytes], *, then_wait: bool = False) -> Play:
    """Take the command, say the pieces, and hang up, or wait until the client does."""

    def play(sock: socket.socket, nonce: bytes) -> None:
        sock.sendall(nonce + READY)
        sock.recv(1 << 16)
        for piece in pieces:
            sock.sendall(piece)
        if then_wait:
            while sock.recv(1 << 16):
                pass

    return play


class Seen(NamedTuple):
    out: bytes
    err: bytes
    end: Exit | None
    error: BoxError | None


def call(play: Play, *, stdin: int | None = None, timeout_ms: int = 0) -> Seen:
    """Run a command against that guest; anything but an end or a BoxError fails the test."""
    out, err = bytearray(), bytearray()
    end, error = None, None
    with guest(play) as sock, Session(sock, bytes(protocol.TOKEN_SIZE)) as session:
        try:
            end = session.exec(["x"], {}, stdin=stdin, stdout=out.extend, stderr=err.extend,
                               timeout_ms=timeout_ms)  # fmt: skip
        except BoxError as caught:
            error = caught
    return Seen(bytes(out), bytes(err), end, error)


class Told(NamedTuple):
    """What a stream of bytes means, read in the plainest way there is."""

    out: bytes
    err: bytes
    end: Exit | None
    more: bool


def told(stream: bytes) -> Told:
    said = {protocol.STDOUT: b"", protocol.STDERR: b""}
    started, end, at = False, None, 0
    bounds = {0x82: (4, 4), 0x88: (1, 65536), 0x89: (1, 65536), 0x8A: (12, 12)}
    while len(stream) - at >= 8 and end is None:
        kind, padding, length = stream[at], stream[at + 1 : at + 4], stream[at + 4 : at + 8]
        size = int.from_bytes(length, "little")
        least, most = bounds.get(kind, (1, 0))
        if any(padding) or not least <= size <= most or len(stream) - at - 8 < size:
            break
        if (kind == protocol.STARTED) is started:
            break
        payload = stream[at + 8 : at + 8 + size]
        if kind in said:
            said[kind] += payload
        elif kind == protocol.EXIT:
            code, signo, flags = struct.unpack("<iII", payload)
            sane = (0 <= code < 256 and signo == 0) or (code == -1 and 0 < signo <= 64)
            if not sane or flags > 3:
                break
            end = Exit(code, signo, timed_out=bool(flags & 1), truncated=bool(flags & 2))
        started = True
        at += 8 + size
    return Told(said[protocol.STDOUT], said[protocol.STDERR], end, at < len(stream))


_KINDS = [*protocol.NAMES, *range(9), 0x84, 0xFF]
_LENGTHS = st.sampled_from([0, 1, 4, 12, 65536, 65537, 1 << 31, 0xFFFFFFFF]) | st.integers(0, 99)
_ODD = st.builds(
    lambda kind, padding, length, rest: struct.pack("<B3sI", kind, padding, length) + rest,
    st.sampled_from(_KINDS),
    st.sampled_from([b"\0\0\0"] * 3 + [b"\0\0\1"]),
    _LENGTHS,
    st.binary(max_size=40),
)
_RIGHT = st.one_of(
    st.sampled_from([STARTED, EXITED, STDOUT, encode_frame(protocol.CLAIMED)]),
    st.builds(encode_frame, st.sampled_from([0x88, 0x89]), st.binary(min_size=1, max_size=300)),
    st.builds(encode_frame, st.sampled_from(_KINDS), st.binary(max_size=20)),
    st.builds(
        lambda *numbers: encode_frame(protocol.EXIT, struct.pack("<iII", *numbers)),
        st.integers(-2, 256), st.integers(0, 65), st.integers(0, 2),
    ),
)  # fmt: skip
_SCRIPTS = st.lists(st.one_of(_RIGHT, _RIGHT, _ODD, st.binary(max_size=20)), max_size=10)


@given(prefix=st.sampled_from([STARTED, STARTED, b""]), script=_SCRIPTS, cut=st.integers(1, 5000),
       lost=st.integers(0, 30))  # fmt: skip
@example(prefix=STARTED, script=[EXITED, EXITED], cut=5000, lost=0)
@example(prefix=b"", script=[EXITED], cut=1, lost=0)
@example(prefix=STARTED, script=[STARTED, EXITED], cut=7, lost=0)
@example(prefix=STARTED, script=[encode_frame(0x83, b"\1\0\0\0"), EXITED], cut=7, lost=0)
@example(prefix=STARTED, script=[encode_frame(0x83, bytes(4)), EXITED], cut=7, lost=0)
@example(prefix=STARTED, script=[encode_frame(0x8F, b"\1\0\0\0\x1b[2J\n\xff")], cut=7, lost=0)
@settings(max_examples=400)
@pytest.mark.slow
def test_what_is_well_formed_is_passed_on_and_the_rest_is_an_error(
    prefix: bytes, script: list[bytes], cut: int, lost: int
) -> None:
    stream = prefix + b"".join(script)
    stream = stream[: len(stream) - lost]
    expected = told(stream)
    step = cut if len(stream) < 100 * cut else len(stream)
    seen = call(saying(stream[at : at + step] for at in range(0, len(stream), step)))
    assert (seen.out, seen.err) == (expected.out, expected.err)
    if expected.end is None or seen.end is None:
        assert seen.error is not None
        assert str(seen.error).replace("\n", "").isprintable()
        # An end may only be refused for what came behind it.
        assert expected.end is None or expected.more
    else:
        assert seen.end == expected.end


@given(answer=st.binary(max_size=200) | _ODD | _RIGHT, with_nonce=st.booleans())
@settings(max_examples=150)
def test_a_session_starts_with_a_ready_or_an_error(answer: bytes, *, with_nonce: bool) -> None:
    def play(sock: socket.socket, nonce: bytes) -> None:
        sock.sendall((nonce if with_nonce else b"") + answer)

    with guest(play) as sock, pytest.raises(BoxError):
        Session(sock, bytes(protocol.TOKEN_SIZE), timeout_seconds=5)


def dribble(sock: socket.socket, nonce: bytes) -> None:
    """Say the right thing, one byte at a time and ever more slowly than anybody waits."""
    for byte in nonce + READY:
        sock.sendall(bytes([byte]))
        if select.select([sock], [], [], 0.05)[0]:
            return


def flood(sock: socket.socket, _nonce: bytes) -> None:
    """Say bytes of an older session without end."""
    for piece in itertools.repeat(bytes(1 << 16)):
        sock.sendall(piece)


@pytest.mark.parametrize("play", [dribble, flood])
def test_the_time_for_an_answer_is_a_whole_and_not_a_byte_s(play: Play) -> None:
    begin = time.monotonic()
    with guest(play) as sock, pytest.raises(NoAnswer):
        Session(sock, bytes(protocol.TOKEN_SIZE), timeout_seconds=0.3)
    assert time.monotonic() - begin < 30


@contextlib.contextmanager
def endless_input() -> Iterator[int]:
    """An input that stays open and says nothing."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


ENDLESS: dict[str, Iterable[bytes]] = {
    "silence": [],
    "silence once started": [STARTED],
    "output": itertools.chain([STARTED], itertools.repeat(STDOUT)),
    "errors": itertools.chain([STARTED], itertools.repeat(STDERR)),
    "small pieces": itertools.chain([STARTED], itertools.repeat(SMALL)),
    "half a frame": [STARTED + STDOUT[:100]],
}


@pytest.mark.slow
def test_a_guest_that_goes_on_and_on_is_left_soon_after_the_time_limit() -> None:
    """All kinds at once, since each takes the time that a client gives after the limit."""
    left: dict[str, float] = {}

    def wait_for(name: str) -> None:
        begin = time.monotonic()
        with endless_input() as stdin, guest(saying(ENDLESS[name], then_wait=True)) as sock:
            with Session(sock, bytes(protocol.TOKEN_SIZE)) as session:
                end = session.exec(["x"], {}, stdin=stdin, stdout=lambda _: None,
                                   stderr=lambda _: None, timeout_ms=1)  # fmt: skip
            assert end == Exit(-1, signal.SIGKILL, timed_out=True)
        left[name] = time.monotonic() - begin

    waiting = [threading.Thread(target=wait_for, args=[name]) for name in ENDLESS]
    for each in waiting:
        each.start()
    for each in waiting:
        each.join()
    assert left.keys() == ENDLESS.keys()
    assert all(GRACE_SECONDS <= seconds < GRACE_SECONDS + 30 for seconds in left.values()), left


@pytest.mark.parametrize("kind", [protocol.PONG, protocol.STDIN_ACK, protocol.READY])
def test_a_flood_of_what_was_not_asked_for_ends_at_its_first_frame(kind: int) -> None:
    least = {protocol.PONG: 0, protocol.STDIN_ACK: 4, protocol.READY: 9}[kind]
    pieces = itertools.chain([STARTED], itertools.repeat(encode_frame(kind, bytes(least)) * 1000))
    with endless_input() as stdin:
        assert isinstance(call(saying(pieces), stdin=stdin).error, ProtocolError)


def test_input_stays_within_its_window_and_is_acknowledged_once() -> None:
    beyond = []

    def play(sock: socket.socket, nonce: bytes) -> None:
        sock.sendall(nonce + READY + STARTED)
        # In pieces of 32 KiB, each behind its header.
        left = len(encode_exec(Exec(["x"], {}))) + protocol.STDIN_WINDOW + 4 * protocol.HEADER_SIZE
        while left > 0:
            left -= len(sock.recv(1 << 16))
        beyond.append((left, select.select([sock], [], [], 0.2)[0]))
        # Both come with one read, so nothing was sent in between.
        sock.sendall(encode_frame(protocol.STDIN_ACK, struct.pack("<I", protocol.STDIN_WINDOW)) * 2)

    with open("/dev/zero", "rb") as zeros:  # noqa: PTH123 - an endless file
        assert isinstance(call(play, stdin=zeros.fileno()).error, ProtocolError)
    assert beyond == [(0, [])]


def stopped_reader() -> tuple[int, int]:
    """A pipe that is full already."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, bytes(1 << 16))
    os.set_blocking(writing, True)
    return reading, writing


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.slow
def test_memory_does_not_grow_with_what_the_guest_sends(*, reads: bool) -> None:
    """64 MiB that are read, or for a reader that stopped: the same few frames are held.

    The reader does not hold up the time limit either, as `timeout 5 ssh host yes | (head -c 1;
    sleep 60)` ends after 5 seconds.
    """
    sent = []

    def pieces() -> Iterator[bytes]:
        yield STARTED
        for number in range(64 * MIB // len(STDOUT)):
            sent.append(number)
            yield (STDOUT, STDERR)[number % 2]
        yield EXITED

    reading, writing = stopped_reader()
    target = (lambda _: None) if reads else writing
    begin = time.monotonic()
    tracemalloc.start()
    try:
        with guest(saying(pieces(), then_wait=True)) as sock, Session(sock, bytes(32)) as session:
            end = session.exec(["x"], {}, stdin=None, stdout=target, stderr=target, timeout_ms=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        os.close(reading)
        os.close(writing)
    assert end.timed_out is not reads
    assert time.monotonic() - begin < GRACE_SECONDS + 30
    assert peak < 4 * MIB
    assert (len(sent) == 64 * MIB // len(STDOUT)) is reads


def late_reader(reading: int, after: float) -> tuple[threading.Thread, bytearray]:
    """Somebody who begins to read after that many seconds, and reads to the end."""
    got = bytearray()

    def read() -> None:
        time.sleep(after)
        while data := os.read(reading, 1 << 16):
            got.extend(data)

    thread = threading.Thread(target=read)
    thread.start()
    return thread, got


@pytest.mark.parametrize(
    ("tail", "error"),
    [(EXITED, None), (b"\xff" * 8, ProtocolError), (b"", ChannelClosed)],
    ids=["it ended in time", "it broke the rules", "it went away"],
)
@pytest.mark.slow
def test_what_came_before_the_end_reaches_a_late_reader(
    tail: bytes, error: type[BoxError] | None
) -> None:
    """Late by more than the time limit and what is given after it, where the command ended."""
    timeout_ms, after = (100, GRACE_SECONDS + 1) if error is None else (0, 0.3)
    data = os.urandom(3 * protocol.FRAME_MAX)
    frames = [
        encode_frame(protocol.STDOUT, data[at : at + protocol.FRAME_MAX])
        for at in range(0, len(data), protocol.FRAME_MAX)
    ]
    reading, writing = os.pipe()
    thread, got = late_reader(reading, after)
    try:
        play = saying([STARTED, *frames, tail], then_wait=error is None)
        wanted = pytest.raises(error) if error else contextlib.nullcontext()
        with guest(play) as sock, Session(sock, bytes(32)) as session, wanted:
            end = session.exec(["x"], {}, stdin=None, stdout=writing, stderr=2,
                               timeout_ms=timeout_ms)  # fmt: skip
            assert end == Exit(7, 0, timed_out=False)
    finally:
        os.close(writing)
        thread.join()
        os.close(reading)
    assert bytes(got) == data


def test_the_longest_time_limit_is_one() -> None:
    """49 days are more milliseconds than poll takes."""
    seen = call(saying([STARTED, EXITED], then_wait=True), timeout_ms=(1 << 32) - 1)
    assert seen.end == Exit(7, 0, timed_out=False)
