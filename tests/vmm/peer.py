"""The other end of a QMP socket: a thread that answers as it is told, honest or hostile."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from reconciler.vmm.qmp import Qmp

GREETING = {"QMP": {"version": {"qemu": {"major": 7}}, "capabilities": []}}
Answer = Callable[["Peer", dict[str, Any]], None]


class Peer:
    """`requests` are the commands it got, `inodes` those of the files that came with them."""

    def __init__(self, sock: socket.socket, answer: Answer) -> None:
        self.sock = sock
        self.requests: list[dict[str, Any]] = []
        self.inodes: list[int] = []
        self._answer = answer

    def say(self, *values: object) -> None:
        self.sock.sendall(b"".join(json.dumps(value).encode() + b"\n" for value in values))

    def serve(self) -> None:
        # The test closes its end when it has seen enough.
        with contextlib.suppress(OSError):
            self.say(GREETING)
            for request in self._requests():
                self.requests.append(request)
                if request["execute"] == "qmp_capabilities":
                    self.say({"return": {}})
                else:
                    self._answer(self, request)

    def _requests(self) -> Iterator[dict[str, Any]]:
        buffer = b""
        while True:
            data, ancillary, _, _ = self.sock.recvmsg(65536, 4096)
            for _, _, content in ancillary:
                self._take(content)
            if not data:
                return
            buffer += data
            while b"\n" in buffer:
                line, _, buffer = buffer.partition(b"\n")
                yield json.loads(line)

    def _take(self, content: bytes) -> None:
        fds = array.array("i")
        fds.frombytes(content)
        for fd in fds:
            self.inodes.append(os.fstat(fd).st_ino)
            os.close(fd)


def nothing(peer: Peer, _request: dict[str, Any]) -> None:
    """Agree to everything."""
    peer.say({"return": {}})


@contextlib.contextmanager
def connected(answer: Answer = nothing) -> Iterator[tuple[Qmp, Peer]]:
    """A session with a peer that answers by `answer`."""
    ours, theirs = socket.socketpair()
    peer = Peer(theirs, answer)
    thread = threading.Thread(target=peer.serve)
    thread.start()
    try:
        yield Qmp(ours, timeout_seconds=30), peer
    finally:
        for end in (ours, theirs):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        ours.close()
        theirs.close()
