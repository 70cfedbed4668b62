"""The end of quickstart: converge a folder, run one command in a sandbox, show what confines it."""

from __future__ import annotations

import os
from pathlib import Path

from reconciler.boxfile.problems import printable
from reconciler.controller import once
from reconciler.controller.entry import Declared, FileState, Unsettled
from reconciler.controller.folder import Folder
from reconciler.controller.lock import TwoControllers
from reconciler.controller.port import LocalEngine
from reconciler.controller.survey import Surveyor
from reconciler.engine import launching, observe, proof
from reconciler.engine.host.namespaces import check_namespaces
from reconciler.engine.records import VmRecord
from reconciler.errors import BoxError
from reconciler.guest import channel
from reconciler.surfaces.cli import tables
from reconciler.surfaces.cli.terminal import say, tell
from reconciler.surfaces.confined import confinement_lines

_COMMAND = ("uname", "-a")
_COMMAND_TIMEOUT_MS = 30_000
_NOT_ALL = BoxError.exit_code


def strict_sandboxes(folder: Path) -> set[str]:
    """The names in a folder that need a slot of their own; a broken Boxfile needs none yet."""
    return {entry.name for entry in Folder(folder).scan().entries if _may_be_strict(entry.state)}


def _may_be_strict(state: FileState) -> bool:
    if isinstance(state, Declared):
        return state.spec.isolation == "strict"
    return isinstance(state, Unsettled)


def converge_and_show(home: Path, folder: Path) -> int:
    """Converge `folder`, run a command in its first running sandbox, print what confines it.

    Returns the exit status: 125 when not everything is as declared.
    """
    if os.getuid() != 0:
        check_namespaces()
    try:
        status = _converge(home, Folder(folder))
    except TwoControllers as error:
        tell(f"box: {error.brief} Left to it.")
        status = 0
    vm = _first_running(home, folder)
    if vm is None:
        say("No sandbox of this folder is running.")
    else:
        _show(home, vm)
    return status


def _converge(home: Path, folder: Folder) -> int:
    engine = LocalEngine(home)
    surveyor = Surveyor(engine, home, folder)
    with once.held_folder(home, folder):
        survey = once.settled_survey(surveyor)
        surveyor.keep(survey)
        results = list(once.converge_once(engine, home, survey, _report))
    tables.sync(survey, results, "text")
    failed = any(result.failed for result in results)
    return _NOT_ALL if failed or survey.ruling.held or not survey.scan.complete else 0


def _report(name: str, text: str) -> None:
    tell(f"{name}: {printable(text)}")


def _first_running(home: Path, folder: Path) -> VmRecord | None:
    for name in sorted(Folder(folder).scan().names):
        seen = observe.observe(home, name, read_back=False)
        if seen.running:
            return seen.vm
    return None


def _show(home: Path, vm: VmRecord) -> None:
    launching.check_proof(home, vm)
    say(f"\n$ box exec {vm.sandbox} -- {' '.join(_COMMAND)}")
    with (
        channel.claim_port(vm.directory(home)) as sock,
        channel.Session(sock, bytes.fromhex(vm.token)) as session,
    ):
        output = bytearray()
        session.exec(
            _COMMAND,
            {},
            stdin=None,
            stdout=output.extend,
            stderr=output.extend,
            user=vm.user,
            timeout_ms=_COMMAND_TIMEOUT_MS,
        )
    # From a guest: it gets no control over the terminal.
    for line in output.decode(errors="replace").splitlines():
        say(printable(line))
    say(f"\nWhat confines {vm.sandbox}:")
    proven = proof.proof_of(home, vm.spec.backend, vm.fingerprint)
    for line in confinement_lines(home, vm, observe.read_facts(home, vm), proven):
        say(line)
