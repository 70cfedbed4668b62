"""`ps`: the processes in a running sandbox, whatever its image has or lacks."""

from __future__ import annotations

import json
import shlex

from reconciler.boxfile.problems import printable
from reconciler.engine import commands, contact
from reconciler.engine.home import open_home
from reconciler.errors import BoxError, Refused
from reconciler.guest import channel, processes, protocol
from reconciler.guest.capture import Capture
from reconciler.guest.processes import Process
from reconciler.surfaces.cli import asking
from reconciler.surfaces.cli.endings import unwinding
from reconciler.surfaces.cli.options import Parsed
from reconciler.surfaces.cli.terminal import say, tell

LISTING_BYTES = 4 << 20
_SAID_BYTES = 4096
_TIMEOUT_MS = 10_000
_PORT_SECONDS = 10.0
_NO_SUCH_PROGRAM = 127
_COLUMNS = ("PID", "PPID", "UID", "STATE", "RSS", "ELAPSED", "EXEC")


def show(parsed: Parsed) -> int:
    """Print the processes of the sandbox that the command line names."""
    name = asking.only_name(parsed)
    as_json = asking.wants_json(parsed)
    listing = _list(name)
    found = processes.parse(listing.data)
    if listing.gap:
        tell(f"box: {name} has more processes than are shown")
    if as_json:
        values = [each._asdict() for each in found]
        say(json.dumps(values, indent=2, sort_keys=True))
    else:
        _table(found)
    return 0


def _list(name: str) -> Capture:
    vm = contact.running(open_home(), name)
    request = commands.request(
        vm, ("ps", "/proc"), cwd="/", user="", timeout_ms=_TIMEOUT_MS, kind=protocol.OWN
    )
    listing, said = Capture(LISTING_BYTES, 0), Capture(_SAID_BYTES, 0)
    with (
        unwinding(),
        contact.answering(vm),
        channel.claim_port(vm.directory, timeout_seconds=_PORT_SECONDS) as sock,
        channel.Session(sock, vm.token) as session,
    ):
        end = session.carry_out(request, stdin=None, stdout=listing, stderr=said)
    if end.code == _NO_SUCH_PROGRAM:
        raise Refused(
            f"{name} was started by a box that could not list processes.",
            hint=f"box down {name}; box up {name}",
        )
    if end.code != 0:
        details = printable(said.kept().text) or f"exit status {commands.exit_code(end)}"
        raise BoxError(f"The processes of {name} could not be listed.", details=details)
    return listing


def _table(found: list[Process]) -> None:
    rows = [_COLUMNS, *map(_cells, found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, command in zip(rows, ("COMMAND", *map(_command, found)), strict=True):
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        say("  ".join((*cells, command)))


def _cells(process: Process) -> tuple[str, ...]:
    port = "-" if process.port is None else str(process.port)
    numbers = (process.pid, process.ppid, process.uid)
    memory = f"{process.rss_kib} KiB"
    return (*map(str, numbers), process.state, memory, f"{process.elapsed_seconds} s", port)


def _command(process: Process) -> str:
    return printable(shlex.join(process.argv) if process.argv else f"[{process.name}]")
