"""The agent against clients that are late, gone, wrong or hostile."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.errors import BoxError
from reconciler.guest import protocol
from reconciler.guest.channel import NoAnswer, Session
from reconciler.guest.protocol import UNCLAIMED_TOKEN, Claim, Decoder, Exec, Frame

AgentStarter = Callable[..., contextlib.AbstractContextManager[socket.socket]]

NONCE = b"fedcba9876543210"
SETTLE_SECONDS = 0.2


def exec_frame(*argv: str) -> bytes:
    return protocol.encode_exec(Exec(argv, {}))


def stdin_frame(data: bytes) -> bytes:
    return protocol.encode_frame(protocol.STDIN, data)


def start_raw(sock: socket.socket, token: bytes) -> Decoder:
    """Start a session by hand; returns the decoder that has seen READY."""
    sock.settimeout(60)
    sock.sendall(token + NONCE)
    decoder = Decoder(NONCE)
    assert next_frame(sock, decoder).type == protocol.READY
    return decoder


def next_frame(sock: socket.socket, decoder: Decoder) -> Frame:
    data = b""
    while True:
        for frame in decoder.feed(data):
            return frame
        data = sock.recv(1 << 16)
        assert data, "the agent hung up"


def end_session(sock: socket.socket, token: bytes) -> None:
    """Leave the agent without a session, as a client's hang-up does on a real port."""
    decoder = start_raw(sock, token)
    sock.sendall(b"\xff" * protocol.HEADER_SIZE)
    assert next_frame(sock, decoder).type == protocol.ERROR


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # the latter: gone since it was opened
        return False
    return stat.rpartition(b")")[2].split()[0] != b"Z"


def is_silent(sock: socket.socket) -> bool:
    return not select.select([sock], [], [], SETTLE_SECONDS)[0]


def echo_works(sock: socket.socket, token: bytes) -> bool:
    output = bytearray()
    with Session(sock, token) as session:
        session.exec(["echo", "hi"], {}, stdin=None, stdout=output.extend, stderr=2)
    return output == b"hi\n"


def test_a_session_starts_with_the_agent_s_word(unclaimed: socket.socket, claim: Claim) -> None:
    with Session(unclaimed, UNCLAIMED_TOKEN) as session:
        kernel = os.uname()
        assert not session.ready.claimed
        assert session.ready.release == kernel.release
        assert session.ready.kernel_version == kernel.version
        assert session.ready.machine == kernel.machine
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert session.ready.boot_id == boot_id
        session.ping()
        session.claim(claim)
    with Session(unclaimed, claim.token) as session:
        assert session.ready.claimed


def test_a_plain_process_does_not_touch_the_host(unclaimed: socket.socket, claim: Claim) -> None:
    name, machine_id = socket.gethostname(), Path("/etc/machine-id")
    before = machine_id.read_bytes() if machine_id.exists() else None
    with Session(unclaimed, UNCLAIMED_TOKEN) as session:
        session.claim(claim._replace(realtime_ns=0, mount_data=True, hostname="not-this"))
    assert socket.gethostname() == name
    assert (machine_id.read_bytes() if machine_id.exists() else None) == before
    assert time.time() > 1e9


@pytest.mark.parametrize("wrong", [bytes(32), UNCLAIMED_TOKEN, b"GET / HTTP/1.1\r\n\r\n" * 4])
def test_a_wrong_token_gets_silence(claimed: socket.socket, token: bytes, wrong: bytes) -> None:
    end_session(claimed, token)
    claimed.sendall(wrong + NONCE + exec_frame("touch", "/tmp/box-must-not-be"))
    assert is_silent(claimed)
    with pytest.raises(NoAnswer):
        Session(claimed, wrong[: protocol.TOKEN_SIZE], timeout_seconds=0.2)
    assert echo_works(claimed, token)
    assert not Path("/tmp/box-must-not-be").exists()


def test_a_token_is_found_byte_by_byte(claimed: socket.socket, token: bytes) -> None:
    # The false starts end in what the token begins with.
    for byte in token[:5] + token[:31] + token + NONCE:
        claimed.sendall(bytes([byte]))
    assert next_frame(claimed, Decoder(NONCE)).type == protocol.READY


def test_a_token_is_found_behind_a_false_start(unclaimed: socket.socket, claim: Claim) -> None:
    token = b"\1" * 16 + b"\2" * 16
    with Session(unclaimed, UNCLAIMED_TOKEN) as session:
        session.claim(claim._replace(token=token))
    unclaimed.sendall(b"\1" * 5 + token + NONCE)
    assert next_frame(unclaimed, Decoder(NONCE)).type == protocol.READY


@pytest.mark.parametrize("cut", [0, 1, 4, 7, 8, 9, 100, 8 + 4095, 8 + 4096])
def test_a_client_gone_inside_a_frame_leaves_nothing(
    claimed: socket.socket, token: bytes, cut: int
) -> None:
    """The next client's token comes where the old one's frame would have gone on."""
    start_raw(claimed, token)
    claimed.sendall(exec_frame("cat") + stdin_frame(b"old" * 100))
    claimed.sendall(stdin_frame(bytes(4096))[:cut])
    assert echo_works(claimed, token)


def test_the_token_is_not_given_to_the_old_command(
    claimed: socket.socket, token: bytes, tmp_path: Path
) -> None:
    """A frame that is 20 bytes short, then 20 bytes of the token, then its rest."""
    seen = tmp_path / "seen"
    start_raw(claimed, token)
    claimed.sendall(exec_frame("sh", "-c", f"cat > {seen}"))
    claimed.sendall(stdin_frame(bytes(100))[:-20] + token[:20])
    time.sleep(SETTLE_SECONDS)
    claimed.sendall(token[20:] + NONCE)
    assert next_frame(claimed, Decoder(NONCE)).type == protocol.READY
    assert token[:8] not in seen.read_bytes()


def test_a_new_session_kills_the_old_one_s_command(claimed: socket.socket, token: bytes) -> None:
    decoder = start_raw(claimed, token)
    claimed.sendall(exec_frame("sh", "-c", "echo $$; setsid sleep 300 & sleep 300"))
    assert next_frame(claimed, decoder).type == protocol.STARTED
    pid = int(next_frame(claimed, decoder).payload)
    assert is_alive(pid)
    assert echo_works(claimed, token)
    assert not is_alive(pid)


def test_a_client_gone_under_a_flood_leaves_nothing(claimed: socket.socket, token: bytes) -> None:
    for _ in range(5):
        decoder = start_raw(claimed, token)
        claimed.sendall(exec_frame("cat", "/dev/zero"))
        assert next_frame(claimed, decoder).type == protocol.STARTED
        for _ in range(50):
            assert next_frame(claimed, decoder).type == protocol.STDOUT
        assert echo_works(claimed, token)


def test_a_client_that_reads_nothing_can_still_be_replaced(
    claimed: socket.socket, token: bytes
) -> None:
    start_raw(claimed, token)
    claimed.sendall(exec_frame("cat", "/dev/zero"))
    time.sleep(SETTLE_SECONDS)
    assert echo_works(claimed, token)


def test_what_was_written_before_the_exit_is_never_cut(
    start_agent: AgentStarter, claim: Claim
) -> None:
    """A slow reader: the pipe still holds output long after the drain time."""
    with start_agent(send_buffer=4096) as sock:
        with Session(sock, UNCLAIMED_TOKEN) as session:
            session.claim(claim)
        decoder = start_raw(sock, claim.token)
        # 64 KiB of it fit into the agent's buffer, the rest stays in the pipe.
        sock.sendall(exec_frame("sh", "-c", "head -c 100000 /dev/zero; sleep 300 &"))
        assert next_frame(sock, decoder).type == protocol.STARTED
        time.sleep(0.6)
        received = 0
        while (frame := next_frame(sock, decoder)).type == protocol.STDOUT:
            received += len(frame.payload)
        assert (received, frame.type) == (100_000, protocol.EXIT)


def test_commands_end_with_their_client(start_agent: AgentStarter, claim: Claim) -> None:
    with start_agent() as sock:
        with Session(sock, UNCLAIMED_TOKEN) as session:
            session.claim(claim)
        decoder = start_raw(sock, claim.token)
        sock.sendall(exec_frame("sh", "-c", "echo $$; exec sleep 300"))
        assert next_frame(sock, decoder).type == protocol.STARTED
        pid = int(next_frame(sock, decoder).payload)
        assert is_alive(pid)
    assert not is_alive(pid)


def bad_exec(
    rest: bytes, *, flags: int = 0, argc: int = 1, envc: int = 0, rows: int = 0, limits: int = 0
) -> bytes:
    payload = struct.pack("<IIHHHHI", flags, 0, argc, envc, rows, 0, limits) + rest
    return protocol.encode_frame(protocol.EXEC, payload)


BAD_FRAMES = {
    "unknown type": b"\x77\0\0\0\0\0\0\0",
    "type of a reply": b"\x88\0\0\0\1\0\0\0x",
    "padding": b"\x06\1\0\0\0\0\0\0",
    "stdin of 4 GiB": b"\x03\0\0\0\xff\xff\xff\xff",
    "stdin too long": struct.pack("<II", 3, 65537),
    "exec too long": struct.pack("<II", 2, 262145),
    "exec too short": struct.pack("<II", 2, 19) + bytes(19),
    "exec without arguments": bad_exec(b"\0\0", argc=0),
    "exec without its last NUL": bad_exec(b"\0\0xy"),
    "exec with fewer strings": bad_exec(b"\0\0x\0", argc=2),
    "exec with more strings": bad_exec(b"\0\0x\0y\0"),
    "exec with a nameless variable": bad_exec(b"\0\0x\0=y\0", envc=1),
    "exec with flags": bad_exec(b"\0\0x\0", flags=1 << 31),
    "exec with a size and no terminal": bad_exec(b"\0\0x\0", rows=24),
    "exec with 17 limits": bad_exec(bytes(17 * 20) + b"\0\0x\0", limits=17),
    "exec with 2^32-1 limits": bad_exec(b"\0\0x\0", limits=0xFFFFFFFF),
    "exec with fewer limits": bad_exec(bytes(19), limits=1),
    "exec with an unknown limit": bad_exec(struct.pack("<IQQ", 16, 0, 0) + b"\0\0x\0", limits=1),
    "exec with a limit above": bad_exec(struct.pack("<IQQ", 7, 2, 1) + b"\0\0x\0", limits=1),
    "resize too short": struct.pack("<IIH", 8, 2, 1),
    "resize too long": struct.pack("<IIIH", 8, 6, 1, 1),
    "signal 0": struct.pack("<III", 5, 4, 0),
    "signal 65": struct.pack("<III", 5, 4, 65),
    "claim too short": struct.pack("<II", 1, 121) + bytes(121),
    "claim with a longer name": struct.pack("<II", 1, 122) + bytes(121) + b"\x01",
    "claim with flags": struct.pack("<II", 1, 122) + bytes(120) + b"\x03\0",
    "claim before 1970": struct.pack("<II", 1, 122) + b"\xff" * 104 + bytes(18),
    "claim with a bad name": struct.pack("<II", 1, 123) + bytes(121) + b"\1\n",
}


@pytest.mark.parametrize("frame", BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_a_bad_frame_ends_the_session(claimed: socket.socket, token: bytes, frame: bytes) -> None:
    decoder = start_raw(claimed, token)
    claimed.sendall(frame)
    assert next_frame(claimed, decoder).type == protocol.ERROR
    claimed.sendall(exec_frame("echo", "not any more"))
    assert is_silent(claimed)
    assert echo_works(claimed, token)


def test_a_bad_frame_ends_the_command(claimed: socket.socket, token: bytes) -> None:
    decoder = start_raw(claimed, token)
    claimed.sendall(exec_frame("sleep", "300"))
    pid = protocol.decode_number(next_frame(claimed, decoder).payload)
    claimed.sendall(exec_frame("echo", "a second one"))
    assert next_frame(claimed, decoder).type == protocol.ERROR
    assert echo_works(claimed, token)
    assert not is_alive(pid)


def test_more_input_than_the_window_ends_the_session(claimed: socket.socket, token: bytes) -> None:
    decoder = start_raw(claimed, token)
    claimed.sendall(exec_frame("sleep", "300"))
    assert next_frame(claimed, decoder).type == protocol.STARTED
    for _ in range(4):  # the pipe takes 64 KiB, and that much is acknowledged
        claimed.sendall(stdin_frame(bytes(65536)))
    frames = [next_frame(claimed, decoder).type for _ in range(2)]
    assert frames == [protocol.STDIN_ACK, protocol.ERROR]


def test_input_after_its_end_ends_the_session(claimed: socket.socket, token: bytes) -> None:
    decoder = start_raw(claimed, token)
    end = protocol.encode_frame(protocol.STDIN_EOF)
    claimed.sendall(exec_frame("sleep", "300") + end + stdin_frame(b"x"))
    assert next_frame(claimed, decoder).type == protocol.STARTED
    assert next_frame(claimed, decoder).type == protocol.ERROR


def test_questions_without_reading_the_answers_are_bounded(
    claimed: socket.socket, token: bytes
) -> None:
    start_raw(claimed, token)
    claimed.sendall(protocol.encode_frame(protocol.PING, bytes(64)) * 200_000)
    assert echo_works(claimed, token)


def test_nothing_runs_before_a_claim(unclaimed: socket.socket) -> None:
    with Session(unclaimed, UNCLAIMED_TOKEN) as session, pytest.raises(BoxError) as caught:
        session.exec(["true"], {}, stdin=None, stdout=1, stderr=2)
    assert "EXEC before CLAIM" in str(caught.value.details)


def test_a_claim_may_follow_a_claim(claimed: socket.socket, token: bytes, claim: Claim) -> None:
    other = os.urandom(protocol.TOKEN_SIZE)
    with Session(claimed, token) as session:
        session.claim(claim._replace(token=other))
    with pytest.raises(NoAnswer):
        Session(claimed, token, timeout_seconds=0.2)
    assert echo_works(claimed, other)


def test_no_claim_while_a_command_runs(claimed: socket.socket, token: bytes, claim: Claim) -> None:
    decoder = start_raw(claimed, token)
    again = protocol.encode_claim(claim._replace(token=os.urandom(protocol.TOKEN_SIZE)))
    claimed.sendall(exec_frame("sleep", "300") + again)
    assert next_frame(claimed, decoder).type == protocol.STARTED
    assert next_frame(claimed, decoder).type == protocol.ERROR


def test_bytes_behind_a_claim_are_searched_for_the_new_token(
    unclaimed: socket.socket, claim: Claim
) -> None:
    start_raw(unclaimed, UNCLAIMED_TOKEN)
    second = b"another nonce..."
    unclaimed.sendall(protocol.encode_claim(claim) + claim.token + second)
    frame = next_frame(unclaimed, Decoder(second))
    assert frame.type == protocol.READY
    assert protocol.decode_ready(frame.payload).claimed


def test_shutdown_lets_commands_end_themselves(start_agent: AgentStarter, claim: Claim) -> None:
    with start_agent() as sock:
        with Session(sock, UNCLAIMED_TOKEN) as session:
            session.claim(claim)
        decoder = start_raw(sock, claim.token)
        # A child that the signal does not end, as its parent ignored it when it was made.
        script = "trap '' TERM; sleep 300 & trap 'echo bye; exit 3' TERM; echo up; wait"
        sock.sendall(exec_frame("sh", "-c", script))
        assert next_frame(sock, decoder).type == protocol.STARTED
        assert next_frame(sock, decoder).payload == b"up\n"
        sock.sendall(protocol.encode_frame(protocol.SHUTDOWN, struct.pack("<I", 5000)))
        assert next_frame(sock, decoder).type == protocol.SHUTTING_DOWN
        assert next_frame(sock, decoder) == (protocol.STDOUT, b"bye\n")
        # Its own child held the output open: flag 2.
        assert next_frame(sock, decoder) == (protocol.EXIT, struct.pack("<iII", 3, 0, 2))
        assert next_frame(sock, decoder) == (protocol.DOWN, b"")
        assert sock.recv(1) == b""


def test_shutdown_ends_what_does_not_end_itself(start_agent: AgentStarter, claim: Claim) -> None:
    with start_agent() as sock:
        with Session(sock, UNCLAIMED_TOKEN) as session:
            session.claim(claim)
        decoder = start_raw(sock, claim.token)
        sock.sendall(exec_frame("sh", "-c", "trap '' TERM; echo up; sleep 300; sleep 300"))
        assert next_frame(sock, decoder).type == protocol.STARTED
        assert next_frame(sock, decoder).payload == b"up\n"
        sock.sendall(protocol.encode_frame(protocol.SHUTDOWN, struct.pack("<I", 300)))
        assert next_frame(sock, decoder).type == protocol.SHUTTING_DOWN
        assert next_frame(sock, decoder) == (protocol.EXIT, struct.pack("<iII", -1, 9, 0))
        assert next_frame(sock, decoder) == (protocol.DOWN, b"")
        assert sock.recv(1) == b""


@pytest.mark.parametrize("arguments", [[], ["--serve-fd"], ["--serve-fd", "x"], ["--help", "0"]])
def test_the_door_for_tests_is_a_narrow_one(agent_binary: Path, arguments: list[str]) -> None:
    done = subprocess.run([agent_binary, *arguments], capture_output=True, check=False)
    assert done.returncode == 1
    assert b"usage: box-agent --serve-fd N" in done.stderr


@pytest.fixture(scope="module")
def fuzzed(start_agent: AgentStarter) -> Iterator[socket.socket]:
    with start_agent() as sock:
        yield sock


def _is_harmless(frame: tuple[int, bytes]) -> bool:
    """Whether a random frame neither claims the agent nor ends it by right."""
    kind, payload = frame
    is_claim = kind == protocol.CLAIM and 122 <= len(payload) <= 186
    return not is_claim and not (kind == protocol.SHUTDOWN and len(payload) == 4)


_FRAMES = st.tuples(st.integers(0, 9), st.binary(max_size=300)).filter(_is_harmless)


@given(frames=st.lists(_FRAMES, max_size=8), tail=st.binary(max_size=40), cut=st.integers(1, 500))
@settings(max_examples=150)
def test_whatever_a_client_sends_the_next_one_is_served(
    fuzzed: socket.socket, frames: list[tuple[int, bytes]], tail: bytes, cut: int
) -> None:
    start_raw(fuzzed, UNCLAIMED_TOKEN)
    data = b"".join(protocol.encode_frame(*frame) for frame in frames)
    if tail[4:8] != b"\4\0\0\0":  # a SHUTDOWN once more
        data += tail
    for at in range(0, len(data), cut):
        fuzzed.sendall(data[at : at + cut])
    start_raw(fuzzed, UNCLAIMED_TOKEN)
