"""Talking to a probe: a command a line, an answer of one line of JSON."""

from __future__ import annotations

import array
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ANSWER_SECONDS = 30.0


@dataclass(frozen=True)
class Attempt:
    """What came of one: `outcome` is worked, denied or killed; `errno` why, `value` how much."""

    id: str
    sentence: str
    outcome: str
    errno: int
    value: int


class Talk:
    """A connected socket with a probe at its other end."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._sock.settimeout(_ANSWER_SECONDS)
        self._lines = sock.makefile("rb")

    def close(self) -> None:
        """Let go of the socket, whose owner closes it."""
        self._lines.close()

    def aim(self, targets: Mapping[str, object], disk: int | None = None) -> None:
        """Tell it what to aim at; it gets a descriptor of its own of the open file `disk`."""
        self._sock.sendall(b"".join(f"{k}={v}\n".encode() for k, v in targets.items()))
        if disk is not None:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [disk]))
            self._sock.sendmsg([b"disk=\n"], [rights])

    def view(self) -> dict[str, Any]:
        """What it says that it is."""
        found = self._ask("view")
        assert isinstance(found, dict)
        return found

    def command(self, line: str) -> None:
        """Have it change something of itself, to the end."""
        assert self._ask(line) == {"done": line}

    def tell(self, line: str) -> None:
        """Send a command that has no answer."""
        self._sock.sendall(line.encode() + b"\n")

    def attempt(self, attempt_id: str) -> Attempt:
        """Have it make one attempt; one that it does not outlive is `killed`."""
        found = self._ask(f"try {attempt_id}")
        if found is None:
            return Attempt(attempt_id, attempt_id, "killed", 0, 0)
        return Attempt(**found)

    def attempts(self, ids: Sequence[str]) -> list[Attempt]:
        """All of them, one after the other."""
        return [self.attempt(each) for each in ids]

    def _ask(self, line: str) -> dict[str, Any] | None:
        try:
            self._sock.sendall(line.encode() + b"\n")
            answer = self._lines.readline()
        except ConnectionError:
            return None
        return json.loads(answer) if answer else None
