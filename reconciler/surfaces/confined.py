"""What confines a running sandbox, for a person to read: read back, not remembered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reconciler.confinement.facts import Fact, Verdict
from reconciler.confinement.policy import MIB
from reconciler.engine import accelerator
from reconciler.engine.records import VmRecord

_ROWS = (
    ("host UID", "identity.uid"),
    ("capabilities", "capabilities"),
    ("no_new_privs", "no_new_privs"),
    ("seccomp", "seccomp"),
    ("network", "network.interfaces"),
    ("processes", "limit.pids"),
    ("memory", "limit.memory"),
    ("memory+swap", "limit.swap"),
    ("mounts", "mounts.declared"),
)
_NAMESPACES = "namespace."
_IN_BYTES = frozenset({"limit.memory", "limit.swap"})
_LABEL_WIDTH = 14


def confinement_lines(
    home: Path, vm: VmRecord, facts: tuple[Fact, ...], proven: Mapping[str, Any] | None
) -> list[str]:
    """Lines of a label and a value each; every fact that is not as promised is one of them.

    `facts` are those of `vm` as just read, `proven` its kernel proof (engine.proof).
    """
    rows = [*_kernel(proven), ("machine", _machine(home, vm))]
    known = {fact.promise: fact for fact in facts}
    for label, promise in _ROWS:
        if promise in known:
            rows.append((label, _value(known[promise])))
    rows.append(("namespaces", _namespaces(facts)))
    if vm.spec.isolation == "standard":
        rows.append(("isolation", "standard: an escape from guest and VMM lands in your account"))
    rows += [("NOT SO", f"{f.promise}: want {f.want}, have {f.have}") for f in facts if f.failed]
    good = sum(not fact.failed for fact in facts)
    rows.append(("verdict", f"{good} of {len(facts)} facts, read back just now, are as promised"))
    return [f"  {label:<{_LABEL_WIDTH}}{value}" for label, value in rows]


def _kernel(proven: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if proven is None:
        return [("kernel", "NOT PROVEN to be its own")]
    guest, host = proven["guest"], proven["host"]
    return [
        ("kernel", f"its own: {guest['release']}, boot ID {guest['boot_id']}"),
        ("", f"the host's: {host['release']}, boot ID {host['boot_id']}"),
    ]


def _machine(home: Path, vm: VmRecord) -> str:
    if vm.accelerator == accelerator.KVM:
        return "QEMU on KVM"
    why = accelerator.reason(home, vm.spec.isolation)
    return (
        f"QEMU in software emulation, because {why};\n"
        f"{'':{_LABEL_WIDTH + 2}}QEMU does not call emulation a security boundary"
    )


def _value(fact: Fact) -> str:
    if fact.promise in _IN_BYTES and fact.have.isdecimal():
        return f"{int(fact.have) // MIB} MiB"
    return fact.have


def _namespaces(facts: tuple[Fact, ...]) -> str:
    own = [
        fact.promise.removeprefix(_NAMESPACES)
        for fact in facts
        if fact.promise.startswith(_NAMESPACES) and fact.verdict is Verdict.SAME
    ]
    return f"of its own: {' '.join(own)}" if own else "none of its own"
