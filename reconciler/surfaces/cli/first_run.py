"""The end of quickstart: converge a folder, run one command in a sandbox, show what confines it."""

from __future__ import annotations

import os
from pathlib import Path

from reconciler.engine import launching, observe, passes, proof, records
from reconciler.engine.host.namespaces import check_namespaces
from reconciler.engine.outcome import Done
from reconciler.engine.records import VmRecord
from reconciler.errors import BoxError
from reconciler.guest import channel
from reconciler.surfaces import declared
from reconciler.surfaces.cli.terminal import say, tell
from reconciler.surfaces.cli.vm import progress
from reconciler.surfaces.confined import confinement_lines

_COMMAND = ("uname", "-a")
_COMMAND_TIMEOUT_MS = 30_000


def boxfiles(folder: Path) -> dict[str, Path]:
    """The Boxfiles of a folder by their sandbox's name."""
    single = {path.name.removesuffix(".Boxfile"): path for path in folder.glob("*.Boxfile")}
    return dict(sorted({**single, **{p.parent.name: p for p in folder.glob("*/Boxfile")}}.items()))


def strict_sandboxes(folder: Path) -> set[str]:
    """The names of those that need a slot of their own; a broken Boxfile needs none yet."""
    found = set()
    for name, path in boxfiles(folder).items():
        try:
            if declared.load(name, path).isolation == "strict":
                found.add(name)
        except (BoxError, OSError):
            continue
    return found


def converge_and_show(home: Path, folder: Path) -> int:
    """Converge `folder`, run a command in its first running sandbox, print what confines it.

    Returns the exit status: 125 when a sandbox could not be made as declared.
    """
    if os.getuid() != 0:
        check_namespaces()
    status = 0
    for name, path in boxfiles(folder).items():
        try:
            spec = declared.load(name, path)
            outcome = passes.run_pass(
                home, name, spec, source=path, folder=str(folder), progress=progress(name)
            )
            if not isinstance(outcome, Done):
                raise outcome.error
        except BoxError as error:
            tell(f"{name}: {error}")
            status = error.exit_code
    for name in boxfiles(folder):
        vm = records.vm_record(home, name)
        if vm is not None and observe.observe(home, name, read_back=False).running:
            _show(home, vm)
            return status
    say("No sandbox of this folder is declared to run.")
    return status


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
    say(
        "".join(c if c.isprintable() or c == "\n" else "?" for c in output.decode(errors="replace"))
    )
    say(f"What confines {vm.sandbox}:")
    proven = proof.proof_of(home, vm.spec.backend, vm.fingerprint)
    for line in confinement_lines(home, vm, observe.read_facts(home, vm), proven):
        say(line)
