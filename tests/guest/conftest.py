"""The agent as a plain process of the host, behind a socket: the protocol without a VM."""

from __future__ import annotations

import contextlib
import functools
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.guest import protocol
from reconciler.guest.build import find_agent
from reconciler.guest.channel import Session
from tests.guest.tcp_agent import TcpAgent, listening_agent

AgentStarter = Callable[..., contextlib.AbstractContextManager[socket.socket]]


@pytest.fixture(scope="session")
def agent_binary() -> Path:
    return find_agent()


@contextlib.contextmanager
def _running_agent(binary: Path, send_buffer: int = 0) -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    with ours:
        if send_buffer:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        with theirs:
            fd = theirs.fileno()
            agent = subprocess.Popen([str(binary), "--serve-fd", str(fd)], pass_fds=[fd])
        try:
            yield ours
        finally:
            # It ends by itself, and ends what it started, when its client is gone.
            ours.close()
            try:
                status = agent.wait(timeout=20)
            finally:
                agent.kill()
                agent.wait()
        assert status in (0, -signal.SIGKILL)


@pytest.fixture(scope="session")
def start_agent(agent_binary: Path) -> AgentStarter:
    return functools.partial(_running_agent, agent_binary)


@pytest.fixture
def unclaimed(start_agent: AgentStarter) -> Iterator[socket.socket]:
    """Yield the socket of an agent that was not claimed."""
    with start_agent() as sock:
        yield sock


@pytest.fixture
def token() -> bytes:
    return secrets.token_bytes(protocol.TOKEN_SIZE)


@pytest.fixture
def claimed(unclaimed: socket.socket, token: bytes) -> socket.socket:
    """Return the socket of an agent that was claimed with `token`; the session is over."""
    with Session(unclaimed, protocol.UNCLAIMED_TOKEN) as session:
        session.claim(make_claim(token))
    return unclaimed


@pytest.fixture
def session(claimed: socket.socket, token: bytes) -> Iterator[Session]:
    with Session(claimed, token) as session:
        yield session


@pytest.fixture(scope="module")
def lasting_session(start_agent: AgentStarter) -> Iterator[Session]:
    """Yield a session for many commands, one after the other."""
    token = secrets.token_bytes(protocol.TOKEN_SIZE)
    with start_agent() as sock:
        with Session(sock, protocol.UNCLAIMED_TOKEN) as session:
            session.claim(make_claim(token))
        with Session(sock, token) as session:
            yield session


def make_claim(token: bytes) -> protocol.Claim:
    return protocol.Claim(
        token=token,
        entropy=secrets.token_bytes(protocol.ENTROPY_SIZE),
        realtime_ns=time.time_ns(),
        machine_id=secrets.token_bytes(protocol.MACHINE_ID_SIZE),
        hostname="guest",
        mount_data=False,
    )


@pytest.fixture
def claim(token: bytes) -> protocol.Claim:
    return make_claim(token)


@pytest.fixture(scope="module")
def tcp(agent_binary: Path) -> Iterator[TcpAgent]:
    """Yield an agent that listens, for all tests of a module."""
    with listening_agent(agent_binary) as agent:
        yield agent


@pytest.fixture
def fresh_tcp(agent_binary: Path) -> Iterator[TcpAgent]:
    """Yield one for a test that changes its token or counts what it holds."""
    with listening_agent(agent_binary) as agent:
        yield agent
