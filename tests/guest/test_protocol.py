from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.errors import Refused
from reconciler.guest import protocol
from reconciler.guest.protocol import Decoder, Exec, Exit, Frame, Limit, ProtocolError, Size

NONCE = b"0123456789abcdef"


def started() -> Decoder:
    decoder = Decoder(NONCE)
    assert list(decoder.feed(NONCE)) == []
    return decoder


def test_frames_come_out_whole_however_they_come_in() -> None:
    stream = b"old \x88\x00 bytes" + NONCE
    stream += protocol.encode_frame(protocol.STDOUT, b"hello")
    stream += protocol.encode_frame(protocol.EXIT, struct.pack("<iII", 0, 0, 0))
    for size in range(1, len(stream) + 1):
        decoder = Decoder(NONCE)
        frames: list[Frame] = []
        for at in range(0, len(stream), size):
            frames += decoder.feed(stream[at : at + size])
        assert frames == [Frame(protocol.STDOUT, b"hello"), Frame(protocol.EXIT, bytes(12))]


def test_an_old_session_s_flood_is_not_kept() -> None:
    decoder = Decoder(NONCE)
    for _ in range(100):
        assert list(decoder.feed(b"x" * 65536 + NONCE[:-1])) == []
    assert not decoder.started
    assert len(decoder._buffer) < protocol.NONCE_SIZE  # noqa: SLF001 - the bound is the promise


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<BxxxI", protocol.STDOUT, protocol.FRAME_MAX + 1),
        struct.pack("<BxxxI", protocol.STDOUT, 0xFFFFFFFF),
        struct.pack("<BxxxI", protocol.STDOUT, 0),
        struct.pack("<BxxxI", protocol.EXIT, 13),
        struct.pack("<BxxxI", protocol.READY, 8),
        struct.pack("<BxxxI", protocol.EXEC, 20),
        struct.pack("<BxxxI", 0xFF, 0),
        b"\x88\x01\x00\x00\x01\x00\x00\x00",
    ],
)
def test_a_bad_header_is_refused_before_its_payload(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(started().feed(header))


@given(data=st.binary(max_size=4096), cut=st.integers(1, 64))
@settings(max_examples=300)
def test_any_bytes_are_frames_or_a_protocol_error(data: bytes, cut: int) -> None:
    decoder = started()
    try:
        for at in range(0, len(data), cut):
            for frame in decoder.feed(data[at : at + cut]):
                assert frame.type in protocol.NAMES
                assert len(frame.payload) <= protocol.FRAME_MAX
    except ProtocolError:
        pass


@given(payload=st.binary(min_size=9, max_size=1024))
@settings(max_examples=300)
def test_any_ready_is_printable_or_a_protocol_error(payload: bytes) -> None:
    try:
        ready = protocol.decode_ready(b"\x01\x00\x00\x00" + payload[4:])
    except ProtocolError:
        return
    assert all(word.isprintable() for word in ready[2:])


@given(payload=st.binary(min_size=4, max_size=1024))
def test_any_error_is_one_printable_line(payload: bytes) -> None:
    assert protocol.decode_error(payload).isprintable()


def test_ready_holds_what_the_agent_says() -> None:
    payload = b"\x01\x00\x01\x00" + b"\0".join((b"1", b"6.1", b"#1 SMP", b"x86_64", b"id", b""))
    expected = protocol.Ready(1, claimed=True, version="1", release="6.1", kernel_version="#1 SMP",
                              machine="x86_64", boot_id="id")  # fmt: skip
    assert protocol.decode_ready(payload) == expected


@pytest.mark.parametrize(
    "payload",
    [
        b"\x02\x00\x00\x00a\0b\0c\0d\0e\0",  # another version
        b"\x01\x00\x02\x00a\0b\0c\0d\0e\0",  # claimed neither 0 nor 1
        b"\x01\x00\x00\x00a\0b\0c\0d\0e",  # no last NUL
        b"\x01\x00\x00\x00a\0b\0c\0d\0",
        b"\x01\x00\x00\x00a\0b\0c\0d\0e\0f\0",
        b"\x01\x00\x00\x00a\0\x1b]0;x\x07\0c\0d\0e\0",  # a terminal's escape
    ],
)
def test_a_bad_ready_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        protocol.decode_ready(payload)


@pytest.mark.parametrize(
    ("numbers", "end", "status"),
    [
        ((0, 0, 0), Exit(0, 0, timed_out=False), 0),
        ((255, 0, 0), Exit(255, 0, timed_out=False), 255),
        ((143, 0, 0), Exit(143, 0, timed_out=False), 143),
        ((-1, 15, 0), Exit(-1, 15, timed_out=False), 143),
        ((-1, 9, 1), Exit(-1, 9, timed_out=True), 137),
    ],
)
def test_an_exit_by_code_and_one_by_signal_differ(
    numbers: tuple[int, int, int], end: Exit, status: int
) -> None:
    assert protocol.decode_exit(struct.pack("<iII", *numbers)) == end
    assert protocol.exit_status(end) == status


@pytest.mark.parametrize("numbers", [(256, 0, 0), (-1, 0, 0), (0, 9, 0), (-1, 65, 0), (0, 0, 4)])
def test_an_impossible_exit_is_refused(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(ProtocolError):
        protocol.decode_exit(struct.pack("<iII", *numbers))


def test_exec_carries_any_string() -> None:
    words = ["printf", "a b", '"q"', "$HOME", "new\nline", "é", "\udcff", ""]
    frame = protocol.encode_exec(Exec(words, {"K": "v=w"}, "/x", "u", 7))
    strings = frame[protocol.HEADER_SIZE + 20 :].split(b"\0")
    assert strings == [b"/x", b"u", b"printf", b"a b", b'"q"', b"$HOME", b"new\nline", b"\xc3\xa9",
                       b"\xff", b"", b"K=v=w", b""]  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "env"),
    [
        ([], {}),
        (["a\0b"], {}),
        (["a"], {"": "v"}),
        (["a"], {"k=": "v"}),
        (["a"] * (protocol.ARGUMENTS_MAX + 1), {}),
        (["a" * protocol.EXEC_MAX], {}),
    ],
)
def test_what_does_not_fit_is_refused(argv: list[str], env: dict[str, str]) -> None:
    with pytest.raises(Refused):
        protocol.encode_exec(Exec(argv, env))


@pytest.mark.parametrize(
    "request_",
    [
        Exec(["x"], {}, tty=Size(65536, 1)),
        Exec(["x"], {}, tty=Size(1, -1)),
        Exec(["x"], {}, rlimits=[Limit(7, 1, 1)] * 17),
        Exec(["x"], {}, rlimits=[Limit(16, 1, 1)]),
        Exec(["x"], {}, rlimits=[Limit(-1, 1, 1)]),
        Exec(["x"], {}, rlimits=[Limit(7, 2, 1)]),
        Exec(["x"], {}, rlimits=[Limit(7, 1, 1 << 64)]),
    ],
)
def test_sizes_and_limits_that_are_none_are_refused(request_: Exec) -> None:
    with pytest.raises(Refused):
        protocol.encode_exec(request_)
