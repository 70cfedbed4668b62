"""Many commands of box quickly: one process loads everything once, and forks for each of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).parents[2]
SECONDS = 10
"""What a command has time for: one that waits for something that never comes is killed by then."""

_SERVER = f"""
import json, os, resource, signal, sys, traceback
from reconciler.engine import commands, contact, drift, observe, passes, records, security_report
from reconciler.surfaces.cli import app, converge, inspecting, logs, main, ps, vm

def carry_out(argv):
    signal.alarm({SECONDS})
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    sys.argv = ["box", *argv]
    try:
        return main.main()
    except SystemExit as end:
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 99

for line in sys.stdin:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        null = os.open(os.devnull, os.O_RDWR)
        for fd, file in ((0, null), (1, null), (2, writing)):
            os.dup2(file, fd)
        os.close(reading)
        status = carry_out(json.loads(line))
        sys.stderr.flush()
        os._exit(status)
    os.close(writing)
    with open(reading, "rb") as stream:
        said = stream.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([status, said]), flush=True)
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended: a negative status is the signal that killed it."""

    status: int
    stderr: str


@dataclass(frozen=True)
class Commands:
    """A process that carries out commands."""

    _server: subprocess.Popen[str]

    def run(self, *argv: str) -> Ended:
        """Carry one out, with nothing to read and nobody who reads its output."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(argv) + "\n")
        self._server.stdin.flush()
        return Ended(*json.loads(self._server.stdout.readline()))


@contextmanager
def served(environment: dict[str, str]) -> Iterator[Commands]:
    """Commands under this environment."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        env=environment,
        cwd=REPO,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            yield Commands(server)
        finally:
            server.kill()
