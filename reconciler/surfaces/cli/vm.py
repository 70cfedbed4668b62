"""`run`, `exec`, `shell`, `up` and `down`, and the way to `cp`: the commands on the short way."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

from reconciler.engine import holding, launching, records, traces
from reconciler.engine.home import open_home
from reconciler.engine.records import ONCE, VmRecord
from reconciler.engine.spec import Spec
from reconciler.errors import Missing, Refused
from reconciler.guest import channel, protocol
from reconciler.linux import identity
from reconciler.surfaces.cli.endings import Endings, unwinding
from reconciler.surfaces.cli.options import Parsed, Usage, parse
from reconciler.surfaces.cli.terminal import say, tell

_COMMAND_OPTIONS = {"--env": True, "-e": True, "--workdir": True, "-w": True, "--user": True,
                    "-u": True, "--timeout": True, "-i": False, "--interactive": False}  # fmt: skip
_TERMINAL_OPTIONS = {"-t": False, "--tty": False}
_TIMED_OUT = 124
_DAY_SECONDS = 86_400
_RUN_TERM_MS = 1000


def main(arguments: list[str]) -> int:
    """Run one of these commands and return its exit status."""
    verb, *rest = arguments
    parsed = parse(verb, rest, _OPTIONS[verb])
    if parsed.asks_help:
        from reconciler.surfaces.cli import app

        return app.main([verb, "--help"])
    return _VERBS[verb](parsed)


def _exec(given: Parsed) -> int:
    return _in_running(_checked(given, "exec"))


def _shell(parsed: Parsed) -> int:
    from reconciler.boxfile.names import check_name

    check_name(parsed.name)
    if parsed.command:
        hint = f"box exec {parsed.name} -- COMMAND"
        raise Usage("This command takes only the sandbox's name.", hint=hint)
    _check_values(parsed)
    return _in_running(parsed)


def _in_running(parsed: Parsed) -> int:
    home = open_home()
    vm = running(home, parsed.name)
    with unwinding() as endings:
        return _command(home, vm, parsed, endings)


def running(home: Path, name: str) -> VmRecord:
    """The VM of a sandbox that is up. Raises Missing, or Refused without its proof."""
    vm = records.vm_record(home, name)
    if vm is None or not identity.runs(vm.identity):
        raise Missing(f"{name} is not running.", hint=f"box up {name}")
    launching.check_proof(home, vm)
    return vm


def _cp(parsed: Parsed) -> int:
    from reconciler.surfaces.cli import cp

    return cp.copy(parsed)


def _run(given: Parsed) -> int:
    parsed = _checked(given, "run")
    home = open_home()
    with unwinding() as endings:
        try:
            try:
                vm = _fresh(home, parsed)
                return _command(home, vm, parsed, endings)
            finally:
                # A signal up to here, even in this call, still reaches the block below.
                endings.ignore()
        finally:
            _end_own(home, parsed.name)


def _fresh(home: Path, parsed: Parsed) -> VmRecord:
    """Start a VM for the command, as soon as nobody has /data if we are to wait for that."""
    show = progress(parsed.name)

    def start() -> VmRecord:
        # After a wait too: what held /data may have lost its command, and the Boxfile may differ.
        _reap(home)
        spec, _, _ = _sandbox(home, parsed.name)
        with_data = not parsed.has("--no-data")
        return launching.start_vm(
            home, spec, kind=ONCE, incarnation=0, with_data=with_data, progress=show
        )

    seconds = _given_wait(parsed)
    if seconds is None:
        return start()
    # Refused at once where it is no sandbox.
    _sandbox(home, parsed.name)

    def waiting(held: holding.DataHeld) -> None:
        show(f"waiting for /data: {held.brief}")

    return holding.when_free(home, parsed.name, seconds, start, waiting)


def _end_own(home: Path, name: str) -> None:
    from reconciler.engine.stopping import stop_vm

    me = identity.identify(os.getpid())
    for vm in records.vm_records(home, name):
        if vm.kind == ONCE and vm.owner == me:
            stop_vm(home, vm, term_ms=_RUN_TERM_MS)


def _up(parsed: Parsed) -> int:
    return _converge(parsed, "running")


def _down(parsed: Parsed) -> int:
    return _converge(parsed, "stopped")


def _converge(parsed: Parsed, state: str) -> int:
    from dataclasses import replace

    from reconciler.boxfile.names import check_name
    from reconciler.engine import drift, passes
    from reconciler.engine.outcome import Done

    if parsed.command:
        raise Usage("This command takes only the sandbox's name.")
    check_name(parsed.name)
    home = open_home()
    spec, source, folder = _sandbox(home, parsed.name)
    if state == "running":
        drift.acknowledge(home, parsed.name)
    with unwinding():
        outcome = passes.run_pass(
            home,
            parsed.name,
            replace(spec, state=state),
            source=source,
            folder=folder,
            progress=progress(parsed.name),
        )
    if not isinstance(outcome, Done):
        raise outcome.error
    vm = records.vm_record(home, parsed.name)
    if vm is None and state == "running":
        reasons = [action.reason for action in outcome.actions]
        raise Refused(f"{parsed.name} is not up.", details="\n".join(reasons))
    if vm is None:
        say(f"{parsed.name} is down; /data is kept")
    else:
        say(f"{parsed.name} is up: incarnation {vm.incarnation}, {vm.accelerator}, confined")
    return 0


def _checked(parsed: Parsed, verb: str) -> Parsed:
    """See that the command line can be carried out, before a VM is started for it."""
    from reconciler.boxfile.names import check_name

    check_name(parsed.name)
    if not parsed.command:
        raise Usage("Which command?", hint=f"box {verb} {parsed.name} -- COMMAND")
    if _asks_terminal(parsed) and not os.isatty(0):
        hint = "leave -t out, or run it from a terminal"
        raise Usage("-t needs a terminal, and standard input is none.", hint=hint)
    _check_values(parsed)
    return parsed


def _check_values(parsed: Parsed) -> None:
    _given_environment(parsed)
    _given_timeout_ms(parsed)
    _given_wait(parsed)


def _command(home: Path, vm: VmRecord, parsed: Parsed, endings: Endings) -> int:
    """Run the command in `vm` with our streams, and return its exit status."""
    request = protocol.Exec(
        parsed.command or ["shell"],
        _environment(vm, parsed),
        cwd=either(parsed, "--workdir", "-w") or _own_directory(vm, parsed),
        user=either(parsed, "--user", "-u") or vm.user,
        timeout_ms=timeout_ms(vm, parsed),
        kind=protocol.PROGRAM if parsed.command else protocol.LOGIN,
    )
    with (
        channel.claim_port(vm.directory(home)) as sock,
        channel.Session(sock, bytes.fromhex(vm.token)) as session,
    ):
        if _wants_terminal(parsed):
            end = _in_terminal(session, request, endings)
        else:
            with endings.forwarded(session):
                stdin = 0 if _wants_stdin(parsed) else None
                end = session.carry_out(request, stdin=stdin, stdout=1, stderr=2)
    if end.timed_out:
        tell(f"box: {request.argv[0]} took too long and was ended")
        return _TIMED_OUT
    return protocol.exit_status(end)


def _own_directory(vm: VmRecord, parsed: Parsed) -> str:
    """Where commands of this image start; a shell at home, if the image names no place."""
    return "" if not parsed.command and vm.working_dir == "/" else vm.working_dir


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


def _asks_terminal(parsed: Parsed) -> bool:
    return parsed.has("-t") or parsed.has("--tty")


def _wants_terminal(parsed: Parsed) -> bool:
    """Whether the command gets a terminal: with -t, and a shell where we are in one."""
    return os.isatty(0) if not parsed.command else _asks_terminal(parsed)


def _wants_stdin(parsed: Parsed) -> bool:
    """Whether our input is passed on: with -i, or where it is a file or a pipe."""
    return parsed.has("-i") or parsed.has("--interactive") or not os.isatty(0)


def _environment(vm: VmRecord, parsed: Parsed) -> dict[str, str]:
    image = dict(word.partition("=")[::2] for word in vm.image_env)
    ours = {}
    if _wants_terminal(parsed) and "TERM" in os.environ:
        ours["TERM"] = os.environ["TERM"]
    return {**image, **dict(vm.spec.env), **ours, **_given_environment(parsed)}


def _given_environment(parsed: Parsed) -> dict[str, str]:
    env = {}
    for word in (*parsed.values.get("--env", ()), *parsed.values.get("-e", ())):
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise Usage(f"--env takes NAME=VALUE, not {word!r}.")
        env[name] = value
    return env


def either(parsed: Parsed, *options: str) -> str | None:
    """The value of an option that has several names."""
    return next((value for o in options if (value := parsed.last(o)) is not None), None)


def timeout_ms(vm: VmRecord, parsed: Parsed) -> int:
    """The time limit of a command: the command line's, else the sandbox's; 0 is none."""
    given = _given_timeout_ms(parsed)
    return vm.spec.timeout_seconds * 1000 if given is None else given


def _given_timeout_ms(parsed: Parsed) -> int | None:
    given = parsed.last("--timeout")
    if given is None:
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 2_592_000:
        raise Usage(f"--timeout takes seconds from 0 to 2592000, not {given!r}.")
    # Rounded up: 0 would be no limit at all.
    return math.ceil(seconds * 1000)


def _given_wait(parsed: Parsed) -> float | None:
    given = parsed.last("--wait")
    if given is None:
        return None
    if parsed.has("--no-data"):
        raise Usage("--wait waits for /data, and --no-data runs without it: one of the two.")
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _DAY_SECONDS:
        raise Usage(f"--wait takes seconds, more than 0 and at most {_DAY_SECONDS}, not {given!r}.")
    return seconds


def _reap(home: Path) -> None:
    """Take away VMs of `run` commands that were killed before they could."""
    for vm in records.vm_records(home):
        if vm.kind == ONCE and not identity.runs(vm.owner):
            traces.discard(home, vm)


def _sandbox(home: Path, name: str) -> tuple[Spec, Path | None, str | None]:
    from reconciler.surfaces import declared

    return declared.sandbox(home, name)


def progress(name: str) -> Callable[[str], None]:
    """A function that tells on stderr what is being done for `name`."""

    def show(text: str) -> None:
        tell(f"{name}: {text}")

    return show


_OPTIONS: dict[str, dict[str, bool]] = {
    "exec": {**_COMMAND_OPTIONS, **_TERMINAL_OPTIONS},
    "run": {**_COMMAND_OPTIONS, **_TERMINAL_OPTIONS, "--no-data": False, "--wait": True},
    "shell": _COMMAND_OPTIONS,
    "cp": {"--user": True, "-u": True, "--timeout": True},
    "up": {},
    "down": {},
}
_VERBS = {"cp": _cp, "exec": _exec, "run": _run, "shell": _shell, "up": _up, "down": _down}
