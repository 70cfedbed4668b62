"""A VM's ports without a VM: each client gets an agent that is a plain process of the host.

    python plain_vm.py DIRECTORY TOKEN [ANSWER]

With ANSWER, a file, there is no agent: every command writes that to its stdout and succeeds, as a
hostile guest's could.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from reconciler.guest import protocol
from reconciler.guest.build import find_agent
from reconciler.guest.channel import Session

PORTS = 16


def main(directory: Path, token: bytes, answer: Path | None) -> None:
    selector = selectors.DefaultSelector()
    for port in range(PORTS):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(directory / f"p{port}"))
        listener.listen(8)
        selector.register(listener, selectors.EVENT_READ)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        for key, _ in selector.select():
            assert isinstance(key.fileobj, socket.socket)
            client, _ = key.fileobj.accept()
            serve = _serve if answer is None else _lie
            threading.Thread(target=serve, args=(client, token, answer), daemon=True).start()


def _serve(client: socket.socket, token: bytes, _answer: Path | None) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        fd = theirs.fileno()
        agent = subprocess.Popen([find_agent(), "--serve-fd", str(fd)], pass_fds=[fd])
    with Session(ours, protocol.UNCLAIMED_TOKEN) as session:
        session.claim(
            protocol.Claim(
                token=token,
                entropy=secrets.token_bytes(protocol.ENTROPY_SIZE),
                realtime_ns=time.time_ns(),
                machine_id=secrets.token_bytes(protocol.MACHINE_ID_SIZE),
                hostname="guest",
                mount_data=False,
            )
        )
    ours.settimeout(None)
    back = threading.Thread(target=_pump, args=(ours, client))
    back.start()
    _pump(client, ours)
    back.join()
    client.close()
    ours.close()
    agent.wait()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _lie(client: socket.socket, token: bytes, answer: Path | None) -> None:
    assert answer is not None
    hello = client.recv(len(token) + protocol.NONCE_SIZE, socket.MSG_WAITALL)
    ready = struct.pack("<HBx", protocol.PROTOCOL_VERSION, 1) + b"1\0k\0v\0m\0b\0"
    client.sendall(hello[len(token) :] + _reply(protocol.READY, ready))
    client.recv(protocol.HEADER_SIZE)
    client.sendall(_reply(protocol.STARTED, b"\1\0\0\0"))
    data = answer.read_bytes()
    # Whoever has heard enough hangs up.
    with contextlib.suppress(OSError):
        for start in range(0, len(data), protocol.FRAME_MAX):
            client.sendall(_reply(protocol.STDOUT, data[start : start + protocol.FRAME_MAX]))
        client.sendall(_reply(protocol.EXIT, struct.pack("<iII", 0, 0, 0)))
        while client.recv(1 << 16):
            pass


def _reply(kind: int, payload: bytes) -> bytes:
    return protocol.encode_frame(kind, payload)


if __name__ == "__main__":
    main(Path(sys.argv[1]), bytes.fromhex(sys.argv[2]), Path(sys.argv[3]) if sys.argv[3:] else None)
