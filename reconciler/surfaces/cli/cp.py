"""`cp`: files and folders into a running sandbox and out of it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from reconciler.boxfile.names import check_name
from reconciler.engine import command_log, commands, contact
from reconciler.engine.archives import packing, pipes, placing, relaying, unpacking
from reconciler.engine.home import open_home
from reconciler.errors import Refused
from reconciler.guest import channel, protocol
from reconciler.surfaces.cli import asking
from reconciler.surfaces.cli.endings import Endings, unwinding
from reconciler.surfaces.cli.options import Parsed, Usage
from reconciler.surfaces.cli.terminal import tell

# A path of the host's with a colon in it is written with a slash before that: ./a:b
_IN_GUEST = re.compile(r"([^/:]+):(.*)", re.DOTALL)
_STREAM = "-"
_SAID_LIMIT_BYTES = 1 << 16
_FAILED = 1


class _Place(NamedTuple):
    """One side of the copy; `sandbox` "" is the host."""

    sandbox: str
    path: str


def copy(parsed: Parsed) -> int:
    """Copy what the command line says and return the exit status."""
    if len(parsed.command) != 1:
        raise Usage("cp takes a source and a destination.", hint="box cp --help")
    source, target = _place(parsed.name), _place(parsed.command[0])
    if bool(source.sandbox) == bool(target.sandbox):
        raise Usage("One of the two is NAME:PATH, in a sandbox.", hint="box cp --help")
    name = source.sandbox or target.sandbox
    check_name(name)
    home = open_home()
    with unwinding() as endings:
        it = _Copy(home, name, parsed, endings)
        move = it.take if source.sandbox else it.give
        return move(source.path, target.path)


def _place(word: str) -> _Place:
    inside = _IN_GUEST.fullmatch(word)
    return _Place(inside[1], inside[2] or ".") if inside else _Place("", word)


class _Copy:
    """One copy from or to a running sandbox."""

    def __init__(self, home: Path, name: str, parsed: Parsed, endings: Endings) -> None:
        self._home = home
        self._vm = contact.running(home, name)
        self._user = asking.user(parsed)
        self._endings = endings
        self._timeout_ms = asking.timeout_ms(parsed)

    def take(self, source: str, target: str) -> int:
        """Copy out of the guest."""
        if target == _STREAM:
            return self._take_stream(source)
        with placing.destination(target) as place, placing.beside(place) as temporary:
            found: list[unpacking.Unpacked] = []

            def unpack(fd: int) -> None:
                found.append(unpacking.unpack(pipes.Stream(fd), temporary))

            try:
                status = self._run(pipes.read_output, ("send", source), unpack)
            finally:
                # Moving into place and taking away are quick, and must not be cut short.
                self._endings.ignore()
            if status == 0:
                placing.put(found[0], temporary, place)
            return status

    def _take_stream(self, source: str) -> int:
        if os.isatty(1):
            raise Refused("An archive is nothing for a terminal.", hint="redirect it: > FILE")
        return self._run(
            pipes.read_output, ("send", source), lambda fd: relaying.relay(pipes.Stream(fd), 1)
        )

    def give(self, source: str, target: str) -> int:
        """Copy into the guest."""
        if source == _STREAM:
            if os.isatty(0):
                raise Refused("An archive does not come from a terminal.", hint="< FILE")
            # A slash: it is unpacked into a folder, and nothing else gets that name.
            return self._run(
                pipes.write_input,
                ("receive", target.rstrip("/") + "/"),
                lambda fd: relaying.relay(pipes.Stream(0, fd), fd),
            )
        is_folder = packing.check(source)
        packing.top_name(source)
        if is_folder:
            target = target.rstrip("/") or "/"
        return self._run(
            pipes.write_input,
            ("receive", target),
            lambda fd: packing.pack(source, fd, lambda text: tell(f"box: {text}")),
        )

    def _run(
        self,
        move: Callable[..., protocol.Exit],
        argv: tuple[str, str],
        work: Callable[[int], None],
    ) -> int:
        request = commands.request(
            self._vm, argv, user=self._user, timeout_ms=self._timeout_ms, kind=protocol.OWN
        )
        said = _Said()
        with (
            contact.answering(self._vm),
            channel.claim_port(self._vm.directory) as sock,
            channel.Session(sock, self._vm.token) as session,
            command_log.noted(self._home, self._vm, "cp", request) as entry,
            self._endings.forwarded(session),
        ):
            try:
                end = move(session, request, said.take, work)
                entry.ended(end)
            finally:
                said.tell()
        if end.timed_out:
            tell("box: the copy took too long and was ended")
        return commands.exit_code(end)


class _Said:
    """What the guest's side says, for the screen: bounded, and without control characters."""

    def __init__(self) -> None:
        self._text = bytearray()

    def take(self, data: bytes) -> None:
        self._text += data[: _SAID_LIMIT_BYTES - len(self._text)]

    def tell(self) -> None:
        for line in self._text.decode(errors="backslashreplace").split("\n"):
            if line:
                tell("".join(c if c.isprintable() else repr(c)[1:-1] for c in line))
