from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from reconciler.vmm.qmp import MAX_EVENTS, MAX_LINE_BYTES, Qmp, QmpError
from tests.vmm.peer import Peer, connected

Request = dict[str, Any]


def greeted_with(line: bytes) -> None:
    """Open a session with a peer that says one line and waits."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(line)
        Qmp(ours, timeout_seconds=0.3)


def test_a_session_negotiates_and_returns_what_a_command_returns() -> None:
    def answer(peer: Peer, request: Request) -> None:
        peer.say({"return": {"asked": request}})

    with connected(answer) as (qmp, peer):
        value = qmp.execute("query-status", {"a": 1})
    assert value == {"asked": {"execute": "query-status", "arguments": {"a": 1}}}
    assert [each["execute"] for each in peer.requests] == ["qmp_capabilities", "query-status"]


def test_descriptors_travel_with_the_command(tmp_path: Path) -> None:
    with (tmp_path / "disk").open("wb") as disk, connected() as (qmp, peer):
        qmp.execute("getfd", {"fdname": "x"}, fds=[disk.fileno()])
        os.fstat(disk.fileno())  # ours is still open
    assert peer.inodes == [(tmp_path / "disk").stat().st_ino]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"hello": 1}\n', "did not greet"),
        (b"\x1b[2J\n", "not JSON"),
        (b"[1]\n", "not QMP"),
        (b"[" * 100_000 + b"\n", "not JSON"),
        (b"9" * 10_000 + b"\n", "not JSON"),
        (b'{"QMP":', "in time"),
    ],
)
def test_a_peer_that_does_not_greet_as_qmp(line: bytes, message: str) -> None:
    with pytest.raises(QmpError, match=message):
        greeted_with(line)


def test_a_refusal_is_told_without_the_peers_escape_sequences() -> None:
    def answer(peer: Peer, _request: Request) -> None:
        peer.sock.sendall('{"error": {"desc": "\x7f\u202e\u001b[31m'.encode() + b'\\u001b"}}\n')

    with connected(answer) as (qmp, _), pytest.raises(QmpError) as caught:
        qmp.execute("cont")
    # The raw control character makes it no JSON at all.
    assert str(caught.value).isprintable()

    def escaped(peer: Peer, _request: Request) -> None:
        peer.say({"error": {"desc": "\x1b[31m \u202e no"}})

    with connected(escaped) as (qmp, _), pytest.raises(QmpError, match="refused 'cont'") as caught:
        qmp.execute("cont")
    assert all(" " <= c <= "~" or c == "\n" for c in str(caught.value))


def test_an_answer_without_an_end_is_bounded() -> None:
    def answer(peer: Peer, _request: Request) -> None:
        with contextlib.suppress(OSError):
            for _ in range(8 * MAX_LINE_BYTES // 65536):
                peer.sock.sendall(b"x" * 65536)

    with connected(answer) as (qmp, _), pytest.raises(QmpError, match="too long"):
        qmp.execute("cont")


def test_a_peer_that_never_stops_talking_is_late() -> None:
    def answer(peer: Peer, _request: Request) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer.say({"event": "RESUME"})

    with connected(answer) as (qmp, _):
        before = time.monotonic()
        with pytest.raises(QmpError, match="in time"):
            qmp.execute("cont", timeout_seconds=0.3)
        assert time.monotonic() - before < 30


def test_a_silent_peer_is_late() -> None:
    def answer(_peer: Peer, _request: Request) -> None:
        return

    with connected(answer) as (qmp, _), pytest.raises(QmpError, match="in time"):
        qmp.execute("cont", timeout_seconds=0.1)


def test_a_peer_that_leaves() -> None:
    def answer(peer: Peer, _request: Request) -> None:
        peer.sock.shutdown(socket.SHUT_RDWR)

    with connected(answer) as (qmp, _):
        with pytest.raises(QmpError, match="closed its control socket"):
            qmp.execute("cont")
        with pytest.raises(QmpError, match="is gone"):
            qmp.execute("cont")


@pytest.mark.parametrize("value", [{}, {"id": 1}, {"status": "ok"}])
def test_an_answer_that_is_neither_event_nor_result(value: object) -> None:
    def answer(peer: Peer, _request: Request) -> None:
        peer.say(value)

    with connected(answer) as (qmp, _), pytest.raises(QmpError, match="not QMP"):
        qmp.execute("cont")


def test_events_before_an_answer_are_kept_in_order_and_bounded() -> None:
    def answer(peer: Peer, _request: Request) -> None:
        peer.say(*({"event": "STEP", "data": {"n": n}} for n in range(MAX_EVENTS + 3)))
        peer.say({"event": "LAST", "data": "not an object"}, {"return": {}})

    with connected(answer) as (qmp, _):
        qmp.execute("cont")
        # The four oldest are gone: 64 are kept.
        assert qmp.wait_event("STEP", timeout_seconds=30) == {"n": 4}
        assert qmp.wait_event("STEP", timeout_seconds=30) == {"n": 5}
        assert qmp.wait_event("LAST", timeout_seconds=30) == {}
        with pytest.raises(QmpError, match="in time"):
            qmp.wait_event("STEP", timeout_seconds=0.1)
