"""A VM that takes commands and does not end in order: its sockets are served, no guest runs."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from reconciler.guest import protocol
from reconciler.linux import sockets

STATUS = 7
"""What every command in it exits with."""

Ending = Callable[[socket.socket], object]


def reply(kind: int, payload: bytes = b"") -> bytes:
    return protocol.encode_frame(kind, payload)


def refuse(client: socket.socket) -> None:
    """Answer a SHUTDOWN as a guest does that cannot: at once, and /data is not written out."""
    client.sendall(reply(protocol.ERROR, b"\5\0\0\0cannot unmount /data"))


class WritingOut:
    """Answers a SHUTDOWN at once, and says that all is written when it is `let`."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self._written = threading.Event()

    def __call__(self, client: socket.socket) -> None:
        client.sendall(reply(protocol.SHUTTING_DOWN))
        self.begun.set()
        self._written.wait()
        # Who has given it up does not listen any more.
        with contextlib.suppress(OSError):
            client.sendall(reply(protocol.DOWN))

    def let(self) -> None:
        self._written.set()


@contextlib.contextmanager
def served(directory: Path, ending: Ending) -> Iterator[None]:
    """Serve the ports and the control socket of the VM whose directory this is."""
    with contextlib.ExitStack() as stack:
        for name, serve in (("p0", _agent(ending)), ("p1", _agent(ending)), ("qmp", _control)):
            listener = stack.enter_context(sockets.listen_private(directory, name))
            # Closed alone, a listener that somebody waits at goes on waiting.
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            threading.Thread(target=_accept, args=(listener, serve), daemon=True).start()
        yield


def _accept(listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            with client, contextlib.suppress(OSError):
                serve(client)


def _control(client: socket.socket) -> None:
    client.sendall(b'{"QMP": {}}\n')
    with client.makefile("rb") as lines:
        for line in lines:
            assert "execute" in json.loads(line)
            client.sendall(b'{"return": {}}\n')


def _agent(ending: Ending) -> Callable[[socket.socket], None]:
    def serve(client: socket.socket) -> None:
        hello = client.recv(protocol.TOKEN_SIZE + protocol.NONCE_SIZE, socket.MSG_WAITALL)
        ready = struct.pack("<HBx", protocol.PROTOCOL_VERSION, 1) + b"1\0k\0v\0m\0b\0"
        client.sendall(hello[protocol.TOKEN_SIZE :] + reply(protocol.READY, ready))
        while header := client.recv(protocol.HEADER_SIZE, socket.MSG_WAITALL):
            kind, size = struct.unpack("<BxxxI", header)
            if size:
                client.recv(size, socket.MSG_WAITALL)
            match kind:
                case protocol.CLAIM:
                    client.sendall(reply(protocol.CLAIMED))
                case protocol.EXEC:
                    client.sendall(reply(protocol.STARTED, b"\1\0\0\0"))
                    client.sendall(reply(protocol.STDOUT, b"done\n"))
                    client.sendall(reply(protocol.EXIT, struct.pack("<iII", STATUS, 0, 0)))
                case protocol.SHUTDOWN:
                    ending(client)

    return serve
