"""A VMM that was taken over speaks QMP: whatever it says is an answer or an error of ours."""

from __future__ import annotations

import array
import contextlib
import json
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.vmm import control
from reconciler.vmm.qmp import Qmp, QmpError
from tests.vmm.peer import Peer, connected

SECONDS = 1.0
NULL = Path(os.devnull)
HELLO = b'{"QMP": {}}\n{"return": {}}\n'

plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)
message = st.one_of(
    st.binary(max_size=40),
    plain_json.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries({"return": plain_json}).map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries({"error": plain_json}).map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries({"event": plain_json, "data": plain_json}).map(
        lambda value: json.dumps(value).encode()
    ),
    st.sampled_from([b"[" * 99_999, b"9" * 5_000, b'{"return": "\\ud800"}', b"1e999", b"NaN", b""]),
)


@contextlib.contextmanager
def said(data: bytes, fds: tuple[int, ...] = ()) -> Iterator[socket.socket]:
    """Our end of a socket at whose other end somebody has said all this and no more."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        theirs.settimeout(SECONDS)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        assert theirs.sendmsg([data], rights if fds else []) == len(data)
        # What we ask still goes somewhere, and there is no more to be heard.
        theirs.shutdown(socket.SHUT_WR)
        yield ours


CONVERSATIONS: dict[str, Callable[[Qmp, int], object]] = {
    "save": lambda qmp, fd: control.save(qmp, fd, timeout_seconds=SECONDS),
    "restore": lambda qmp, fd: control.restore(qmp, fd, timeout_seconds=SECONDS),
    "attach": control.attach_data,
    "detach": lambda qmp, _fd: control.detach_data(qmp, 1 << 20),
    "console": lambda qmp, _fd: control.console(qmp),
}


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@settings(max_examples=60)
@given(st.lists(message, max_size=12))
def test_whatever_a_vmm_says_is_an_answer_or_an_error_of_ours(
    conversation: str, lines: list[bytes]
) -> None:
    data = HELLO + b"".join(line + b"\n" for line in lines)
    with said(data) as sock, NULL.open() as null, contextlib.suppress(QmpError):
        CONVERSATIONS[conversation](Qmp(sock, timeout_seconds=SECONDS), null.fileno())


@given(plain_json)
def test_whatever_it_refuses_with_is_told_in_a_few_printable_characters(value: object) -> None:
    text = json.dumps({"error": value}).encode() + b"\n"
    with said(HELLO + text) as sock:
        qmp = Qmp(sock, timeout_seconds=SECONDS)
        with pytest.raises(QmpError) as caught:
            qmp.execute("cont", timeout_seconds=SECONDS)
    details = caught.value.details or ""
    assert details.isascii()
    assert all(character.isprintable() for character in details)
    assert len(details) <= 2000


def test_descriptors_that_it_sends_are_not_taken() -> None:
    before = {path.name for path in Path("/proc/self/fd").iterdir()}
    reading, writing = os.pipe()
    with said(HELLO + b'{"return": {}}\n', (writing,) * 50) as sock:
        os.close(writing)
        Qmp(sock, timeout_seconds=SECONDS).execute("cont", timeout_seconds=SECONDS)
        # Nobody has the other end any more: none of the fifty came in.
        assert os.read(reading, 1) == b""
    os.close(reading)
    assert {path.name for path in Path("/proc/self/fd").iterdir()} == before


def test_a_peer_who_takes_them_would_have_them() -> None:
    """What the test above rests on: they do arrive where somebody asks for them."""
    reading, writing = os.pipe()
    with said(HELLO, (writing,) * 3) as sock:
        os.close(writing)
        _, fds, _, _ = socket.recv_fds(sock, 100, 3)
        assert len(fds) == 3
        for fd in fds:
            os.close(fd)
    os.close(reading)


def flood(peer: Peer, line: bytes) -> None:
    with contextlib.suppress(OSError):
        while True:
            peer.sock.sendall(line * 200)


FLOODS = {
    "events of another kind": b'{"event": "STOP", "data": {"a": "bbbbbbbbbbbbbbbbbbbbbb"}}\n',
    "progress without an end": b'{"event": "MIGRATION", "data": {"status": "active"}}\n',
    "a line without an end": b"x" * 4096,
    "empty objects": b"{}\n",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_ends_with_the_time_limit_and_fills_no_memory(kind: str) -> None:
    def answer(peer: Peer, request: dict[str, Any]) -> None:
        if request["execute"] == "migrate":
            peer.say({"return": {}})
            flood(peer, FLOODS[kind])
        else:
            peer.say({"return": {}})

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with connected(answer) as (qmp, _peer), NULL.open("w") as null:
        began = time.monotonic()
        with pytest.raises(QmpError):
            control.save(qmp, null.fileno(), timeout_seconds=SECONDS)
        assert time.monotonic() - began < 30 * SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10


@pytest.mark.timeout(60)
def test_one_who_reads_nothing_holds_nobody_up() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        threading.Thread(target=lambda: theirs.sendall(HELLO), daemon=True).start()
        qmp = Qmp(ours, timeout_seconds=5)
        began = time.monotonic()
        with pytest.raises(QmpError, match=r"gone|in time"):
            qmp.execute("x" * (8 << 20), timeout_seconds=SECONDS)
        assert time.monotonic() - began < 30 * SECONDS
