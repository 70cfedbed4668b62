"""`exec` and `shell`, and the way to the other commands on the short way."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from reconciler.engine import command_log, commands, contact, place
from reconciler.engine.contact import Contact
from reconciler.guest import channel, protocol
from reconciler.surfaces.cli import asking
from reconciler.surfaces.cli.asking import COMMAND_OPTIONS, OUTPUT_OPTIONS, TERMINAL_OPTIONS
from reconciler.surfaces.cli.endings import Endings, unwinding
from reconciler.surfaces.cli.options import Parsed, parse
from reconciler.surfaces.cli.terminal import say, tell


class _Verb(NamedTuple):
    """A command: its options, whether each takes a value, and what carries it out."""

    options: dict[str, bool]
    carry_out: Callable[[Parsed], int]


def main(arguments: list[str]) -> int:
    """Run one of these commands and return its exit status."""
    verb, *rest = arguments
    parsed = parse(verb, rest, VERBS[verb].options)
    if parsed.asks_help:
        from reconciler.surfaces.cli import app

        return app.main([verb, "--help"])
    return VERBS[verb].carry_out(parsed)


def _exec(given: Parsed) -> int:
    return _in_running(asking.checked(given, "exec"))


def _shell(parsed: Parsed) -> int:
    asking.only_name(parsed, hint=f"box exec {parsed.name} -- COMMAND")
    return _in_running(asking.checked_values(parsed))


def _in_running(parsed: Parsed) -> int:
    try:
        home = place.private_place(place.home_place())
    except FileNotFoundError:
        raise contact.not_running(parsed.name) from None
    vm = contact.running(home, parsed.name)
    with unwinding() as endings:
        return command(home, vm, parsed, endings)


def command(home: str | os.PathLike[str], vm: Contact, parsed: Parsed, endings: Endings) -> int:
    """Run the command in `vm` with our streams, and return its exit status."""
    request = asking.request(vm, parsed)
    with (
        contact.answering(vm),
        channel.claim_port(vm.directory) as sock,
        channel.Session(sock, vm.token) as session,
        command_log.noted(home, vm, parsed.verb, request) as entry,
    ):
        if asking.wants_terminal(parsed):
            end = _in_terminal(session, request, endings)
            entry.ended(end)
        else:
            with endings.forwarded(session):
                stdin = 0 if asking.wants_stdin(parsed) else None
                carry_out = _captured if asking.wants_json(parsed) else _passed_on
                end = carry_out(session, request, stdin, entry)
    if end.timed_out:
        tell(f"box: {request.argv[0]} took too long and was ended")
    return commands.exit_code(end)


def _passed_on(
    session: channel.Session, request: protocol.Exec, stdin: int | None, entry: command_log.Entry
) -> protocol.Exit:
    end = session.carry_out(request, stdin=stdin, stdout=1, stderr=2)
    entry.ended(end)
    return end


def _captured(
    session: channel.Session, request: protocol.Exec, stdin: int | None, entry: command_log.Entry
) -> protocol.Exit:
    """Keep what the command writes, and print it as one JSON object at the end."""
    import json

    from reconciler.guest.capture import Capture
    from reconciler.surfaces.cli import ended

    stdout, stderr = Capture(), Capture()
    start = time.monotonic()
    end = session.carry_out(request, stdin=stdin, stdout=stdout, stderr=stderr)
    duration_ms = round((time.monotonic() - start) * 1000)
    entry.ended(end, stdout.total, stderr.total)
    say(json.dumps(ended.as_value(end, stdout, stderr, duration_ms)))
    return end


def _in_terminal(
    session: channel.Session, request: protocol.Exec, endings: Endings
) -> protocol.Exit:
    from reconciler.surfaces.cli import local_terminal

    with (
        endings.forwarded(local_terminal.HangingUp(session)),
        local_terminal.raw(0, session.resize),
    ):
        request = request._replace(tty=local_terminal.size(0))
        return session.carry_out(request, stdin=0, stdout=1, stderr=2)


def _cp(parsed: Parsed) -> int:
    from reconciler.surfaces.cli import cp

    return cp.copy(parsed)


def _ps(parsed: Parsed) -> int:
    from reconciler.surfaces.cli import ps

    return ps.show(parsed)


def _run(parsed: Parsed) -> int:
    from reconciler.surfaces.cli import fresh

    return fresh.run(parsed)


def _up(parsed: Parsed) -> int:
    from reconciler.surfaces.cli import standing

    return standing.up(parsed)


def _down(parsed: Parsed) -> int:
    from reconciler.surfaces.cli import standing

    return standing.down(parsed)


VERBS = {
    "cp": _Verb({"--user": True, "-u": True, "--timeout": True}, _cp),
    "down": _Verb({}, _down),
    "exec": _Verb({**COMMAND_OPTIONS, **TERMINAL_OPTIONS, **OUTPUT_OPTIONS}, _exec),
    "ps": _Verb(OUTPUT_OPTIONS, _ps),
    "run": _Verb(
        {
            **COMMAND_OPTIONS,
            **TERMINAL_OPTIONS,
            **OUTPUT_OPTIONS,
            "--no-data": False,
            "--wait": True,
        },
        _run,
    ),
    "shell": _Verb(COMMAND_OPTIONS, _shell),
    "up": _Verb({}, _up),
}
