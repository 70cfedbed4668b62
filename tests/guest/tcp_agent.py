"""The agent as a plain process that listens on a loopback address."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.errors import BoxError
from reconciler.guest import protocol
from reconciler.guest.channel import Session
from reconciler.guest.transfer import ChannelClosed

END_SECONDS = 60
RELEASE_SECONDS = 60


@dataclass
class TcpAgent:
    """A running agent, the address it listens on and its token."""

    process: subprocess.Popen[bytes]
    address: tuple[str, int]
    token: bytes

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=60)

    @contextlib.contextmanager
    def session(self) -> Iterator[Session]:
        with self.connect() as sock, Session(sock, self.token) as session:
            yield session

    @property
    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    @property
    def private_kib(self) -> int:
        """The memory that is the agent's own, kernel buffers not counted."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("RssAnon:")[2].split()[0])


@contextlib.contextmanager
def token_pipe(token: bytes) -> Iterator[int]:
    """Yield a descriptor to read the token from; its writer stays open."""
    reader, writer = os.pipe()
    try:
        os.write(writer, token)
        yield reader
    finally:
        os.close(reader)
        os.close(writer)


@contextlib.contextmanager
def listening_agent(
    binary: Path, *, cgroup: int | None = None, user: int | None = None
) -> Iterator[TcpAgent]:
    """Run one; it has ended by itself, with status 0, when the block has."""
    token = secrets.token_bytes(protocol.TOKEN_SIZE)
    with socket.create_server(("127.0.0.1", 0)) as listener, token_pipe(token) as token_fd:
        fds = {"--listen-fd": listener.fileno(), "--token-fd": token_fd}
        if cgroup is not None:
            fds["--cgroup-fd"] = cgroup
        address = listener.getsockname()
        arguments = [word for name, fd in fds.items() for word in (name, str(fd))]
        process = subprocess.Popen(
            [binary, *arguments], pass_fds=list(fds.values()), user=user, env={}
        )
    agent = TcpAgent(process, address, token)
    try:
        yield agent
    finally:
        # Also after a failure: an agent that is killed leaves its commands.
        try:
            with agent.session() as session:
                session.shutdown(1000)
            status = process.wait(timeout=END_SECONDS)
        finally:
            process.kill()
            process.wait()
    assert status == 0


def reset(sock: socket.socket) -> None:
    """Close a connection with a RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def read_to_end(sock: socket.socket) -> bytes:
    """All that comes until the other end is closed, by FIN or RST."""
    data = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while piece := sock.recv(1 << 16):
            data += piece
    return bytes(data)


def close_all(socks: Sequence[socket.socket]) -> None:
    for sock in socks:
        sock.close()


def echo_works(agent: TcpAgent) -> bool:
    """Whether a new client is served; the one before may still hold the only group."""
    output = bytearray()
    deadline = time.monotonic() + RELEASE_SECONDS
    while True:
        with agent.session() as session:
            try:
                session.exec(["echo", "hi"], {}, stdin=None, stdout=output.extend, stderr=2)
            except BoxError as error:
                if time.monotonic() > deadline or "another session's" not in str(error.details):
                    raise
            else:
                return output == b"hi\n"


def new_client(agent: TcpAgent) -> None:
    """Come as an honest client does, again and again until it is served."""
    while True:
        with contextlib.suppress(ChannelClosed, OSError), agent.session() as session:
            session.ping()
            return
