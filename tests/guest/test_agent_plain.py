"""How the agent is started as a plain process that listens."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from reconciler.guest.protocol import UNCLAIMED_TOKEN
from tests.guest.tcp_agent import (
    listening_agent,
    token_pipe,
)


def start_refused(binary: Path, *arguments: str, pass_fds: tuple[int, ...] = ()) -> bytes:
    done = subprocess.run([binary, *arguments], pass_fds=pass_fds, capture_output=True, timeout=10)
    assert done.returncode == 1
    return done.stderr


def test_it_does_not_listen_without_a_secret(agent_binary: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listen = ("--listen-fd", str(listener.fileno()))
        fds = (listener.fileno(),)
        assert b"usage:" in start_refused(agent_binary, *listen, pass_fds=fds)
        with token_pipe(UNCLAIMED_TOKEN) as fd:
            words = (*listen, "--token-fd", str(fd))
            said = start_refused(agent_binary, *words, pass_fds=(*fds, fd))
        assert b"the token that everybody knows" in said
        with Path("/dev/null").open() as empty:
            words = (*listen, "--token-fd", str(empty.fileno()))
            said = start_refused(agent_binary, *words, pass_fds=(*fds, empty.fileno()))
        assert b"fewer than 32 bytes" in said


def test_it_listens_on_nothing_but_a_listening_socket(agent_binary: Path) -> None:
    with socket.socket() as sock, token_pipe(bytes(32)) as fd:
        words = ("--listen-fd", str(sock.fileno()), "--token-fd", str(fd))
        said = start_refused(agent_binary, *words, pass_fds=(sock.fileno(), fd))
    assert b"not a listening socket" in said


@pytest.mark.parametrize(
    "words",
    [
        ["--token-fd", "3"],
        ["--listen-fd", "3", "--listen-fd", "4", "--token-fd", "5"],
        ["--serve-fd", "3", "--token-fd", "4"],
        ["--listen-fd", "3", "--token-fd"],
        ["--listen-fd", "3", "--token", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"],
    ],
)
def test_arguments_are_as_they_should_be(agent_binary: Path, words: list[str]) -> None:
    assert b"usage: box-agent --serve-fd N" in start_refused(agent_binary, *words)


@pytest.mark.root
def test_the_token_is_out_of_reach_of_its_user_s_other_processes(agent_binary: Path) -> None:
    nobody = 65534
    with listening_agent(agent_binary, user=nobody) as agent:
        with agent.session() as session:
            output = bytearray()
            session.exec(
                ["sh", "-c", f"id -u; cat /proc/{agent.process.pid}/mem; env"],
                {}, stdin=None, stdout=output.extend, stderr=output.extend,
            )  # fmt: skip
        assert output.startswith(b"65534\n")
        assert b"Permission denied" in output
        process = Path(f"/proc/{agent.process.pid}")
        assert agent.token not in (process / "environ").read_bytes()
        targets = [str(link.readlink()) for link in (process / "fd").iterdir()]
        assert not [target for target in targets if target.startswith("pipe:")], targets
