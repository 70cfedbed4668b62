"""Draining a console, from VMMs that are honest, silent, slow or hostile."""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.engine.console_log import MOST_BYTES, drain, drain_if_possible, path_of
from reconciler.engine.home import sandbox_directory
from reconciler.engine.records import ONCE, VmRecord
from reconciler.errors import BoxError, Busy
from reconciler.linux import files, sockets
from reconciler.linux.identity import ProcessIdentity
from reconciler.vmm.control import CONSOLE_BYTES
from tests.engine import specs
from tests.vmm.peer import Answer, Peer

WHO = ProcessIdentity(5, 6, "boot", None, None)


@pytest.fixture
def web(home: Path) -> VmRecord:
    sandbox_directory(home, "web")
    record = specs.vm(home, "web", identity=WHO)
    record.directory(home).mkdir(mode=0o700)
    return record


@contextlib.contextmanager
def vmm(directory: Path, answer: Answer) -> Iterator[list[Peer]]:
    """Serve QMP at the VM's control socket, one client after the other, as QEMU does."""
    peers: list[Peer] = []
    with sockets.listen_private(directory, "qmp") as listener:
        listener.settimeout(0.05)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    sock, _ = listener.accept()
                    with sock:
                        peers.append(Peer(sock, answer))
                        peers[-1].serve()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield peers
        finally:
            over.set()
            thread.join(10)


def saying(text: bytes) -> Answer:
    def answer(peer: Peer, _request: dict[str, Any]) -> None:
        peer.say({"return": base64.b64encode(text).decode()})

    return answer


def test_what_was_read_is_kept_and_added_to(home: Path, web: VmRecord) -> None:
    with vmm(web.directory(home), saying(b"one\r\n\xff\x1b[")):
        drain(home, web)
        drain(home, web)
    assert path_of(home, "web").read_bytes() == b"one\r\n\xff\x1b[" * 2
    assert path_of(home, "web").stat().st_mode & 0o777 == 0o600


def test_a_flood_is_two_files_of_a_bounded_size(home: Path, web: VmRecord) -> None:
    most = CONSOLE_BYTES
    with vmm(web.directory(home), saying(b"x" * (most + 1000))):
        for _ in range(2 * MOST_BYTES // most + 4):
            drain(home, web)
    kept = sorted((home / "sandboxes" / "web").glob("console.log*"))
    assert [path.name for path in kept] == ["console.log", "console.log.1"]
    assert all(path.stat().st_size <= MOST_BYTES for path in kept)


def nothing(_peer: Peer, _request: dict[str, Any]) -> None:
    """Take the request and stay silent."""


def endless(peer: Peer, _request: dict[str, Any]) -> None:
    for _ in range(64):
        peer.sock.sendall(b"x" * 65536)


@pytest.mark.parametrize(
    "answer",
    [
        nothing,
        endless,
        lambda peer, _: peer.say({"return": 5}),
        lambda peer, _: peer.say({"return": "%%%"}),
        lambda peer, _: peer.say({"error": {"class": "GenericError", "desc": "\x1b[2J"}}),
        lambda peer, _: peer.say(*[{"event": "X"}] * 100),
    ],
)
@pytest.mark.slow
def test_a_vmm_that_does_not_play_along_costs_a_second(
    home: Path, web: VmRecord, answer: Answer
) -> None:
    with vmm(web.directory(home), answer):
        start = time.monotonic()
        with pytest.raises(BoxError):
            drain(home, web)
        drain_if_possible(home, web)
        assert time.monotonic() - start < 20
    assert not path_of(home, "web").exists()


def test_a_vmm_that_is_stopped_or_gone_costs_a_second(home: Path, web: VmRecord) -> None:
    drain_if_possible(home, web)
    with sockets.listen_private(web.directory(home), "qmp"):
        # Connections are accepted by the kernel, and nobody greets.
        start = time.monotonic()
        for _ in range(2):
            drain_if_possible(home, web)
        assert time.monotonic() - start < 20


def test_one_client_at_a_time_and_the_second_does_not_wait_long(home: Path, web: VmRecord) -> None:
    with vmm(web.directory(home), saying(b"x")) as peers:
        with files.locked(web.directory(home) / "qmp.lock"):
            start = time.monotonic()
            with pytest.raises(Busy):
                drain(home, web)
            assert time.monotonic() - start < 20
        assert peers == []


@pytest.mark.parametrize("change", [{"kind": ONCE}, {"identity": None}])
def test_a_vm_that_its_maker_still_talks_to_is_left_alone(
    home: Path, web: VmRecord, change: dict[str, Any]
) -> None:
    from dataclasses import replace

    record = replace(web, **change)
    with vmm(web.directory(home), saying(b"x")) as peers:
        drain(home, record)
    assert peers == []
