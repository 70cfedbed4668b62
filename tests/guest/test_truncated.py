"""Flag 2 of EXIT: the output was still open when the agent stopped reading it."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from reconciler.guest import protocol
from reconciler.guest.channel import Session
from reconciler.guest.protocol import UNCLAIMED_TOKEN, Claim, Exit, ProtocolError, Size
from tests.guest.test_agent import AgentStarter, exec_frame, next_frame, start_raw

CASES = {
    "nothing else": ("echo a; echo b >&2", False),
    "a child that has other output": ("echo a; sleep 300 >/dev/null 2>&1 &", False),
    "a child that ends in time": ("(sleep 0.05; echo a) & echo b", False),
    "a child that holds stdout": ("sleep 300 2>/dev/null & echo a", True),
    "a child that holds stderr": ("sleep 300 >/dev/null & echo a", True),
    "a child that left its session": ("setsid sleep 300 & echo a", True),
    "the time limit ends all": ("sleep 300 & sleep 300", False),
}


@pytest.mark.parametrize("size", [None, Size(24, 80)], ids=["pipes", "terminal"])
@pytest.mark.parametrize("case", CASES)
def test_what_holds_the_output_cuts_it(session: Session, case: str, size: Size | None) -> None:
    script, truncated = CASES[case]
    if size is not None:
        # A terminal hangs up on its children when the leader ends.
        script = f"trap '' HUP; {script}"
    end = session.exec(
        ["sh", "-c", script],
        {},
        stdin=None,
        stdout=bytearray().extend,
        stderr=bytearray().extend,
        timeout_ms=500 if "time limit" in case else 0,
        tty=size,
    )
    assert end.truncated is truncated
    assert end.timed_out == ("time limit" in case)


def test_a_slow_reader_is_not_taken_for_a_cut(start_agent: AgentStarter, claim: Claim) -> None:
    """The pipe takes all of it at once and is still open when the time to drain it is over."""
    with start_agent(send_buffer=4096) as sock:
        assert slow_exit(sock, claim, "head -c 60000 /dev/zero") == Exit(0, 0, timed_out=False)


def test_a_slow_reader_of_a_cut_output_is_told(start_agent: AgentStarter, claim: Claim) -> None:
    with start_agent(send_buffer=4096) as sock:
        end = slow_exit(sock, claim, "head -c 60000 /dev/zero; sleep 300 &")
        assert end == Exit(0, 0, timed_out=False, truncated=True)


def slow_exit(sock: socket.socket, claim: Claim, script: str) -> Exit:
    with Session(sock, UNCLAIMED_TOKEN) as session:
        session.claim(claim)
    decoder = start_raw(sock, claim.token)
    sock.sendall(exec_frame("sh", "-c", script))
    assert next_frame(sock, decoder).type == protocol.STARTED
    time.sleep(0.6)  # longer than the agent drains
    while (frame := next_frame(sock, decoder)).type == protocol.STDOUT:
        pass
    assert frame.type == protocol.EXIT
    return protocol.decode_exit(frame.payload)


def test_the_flags_are_read_apart() -> None:
    for flags in range(4):
        end = protocol.decode_exit(struct.pack("<iII", 0, 0, flags))
        assert end == Exit(0, 0, timed_out=bool(flags & 1), truncated=bool(flags & 2))


@pytest.mark.parametrize("bit", range(2, 32))
def test_a_flag_that_nobody_knows_is_refused(bit: int) -> None:
    with pytest.raises(ProtocolError):
        protocol.decode_exit(struct.pack("<iII", 0, 0, 1 << bit))
