from __future__ import annotations

from pathlib import Path

from reconciler.confinement.facts import Fact, Verdict
from reconciler.engine import accelerator
from reconciler.surfaces.confined import confinement_lines
from tests.engine.specs import spec, vm

PROVEN = {
    "guest": {"release": "6.1-guest", "boot_id": "of-the-guest"},
    "host": {"release": "6.2-host", "boot_id": "of-the-host"},
}
GOOD = (
    Fact("identity.uid", "100000", "100000", Verdict.SAME),
    Fact("limit.memory", "536870912", "536870912", Verdict.SAME),
    Fact("namespace.net", "its own", "its own (net:[1])", Verdict.SAME),
    Fact("namespace.time", "its own", "this kernel has none", Verdict.NOT_APPLICABLE),
)


def text(home: Path, *facts: Fact, isolation: str = "strict") -> str:
    record = vm(home, of=spec(isolation=isolation))
    return "\n".join(confinement_lines(home, record, facts, PROVEN))


def test_what_is_as_promised(box_home: Path) -> None:
    shown = text(box_home, *GOOD)
    assert "its own: 6.1-guest, boot ID of-the-guest" in shown
    assert "512 MiB" in shown
    assert "of its own: net\n" in shown
    assert "4 of 4 facts" in shown
    assert "NOT SO" not in shown


def test_a_difference_stands_out(box_home: Path) -> None:
    bad = Fact("namespace.pid", "its own", "the host's", Verdict.DIFFERS)
    shown = text(box_home, *GOOD, bad)
    assert "NOT SO        namespace.pid: want its own, have the host's" in shown
    assert "of its own: net\n" in shown
    assert "4 of 5 facts" in shown


def test_emulation_is_said_with_its_reason(box_home: Path) -> None:
    accelerator.remember(box_home, "strict", accelerator.EMULATION, "the guest hung")
    shown = text(box_home, *GOOD)
    assert "software emulation" in shown
    if accelerator.DEVICE.exists():
        assert "the guest hung" in shown


def test_standard_says_where_an_escape_lands(box_home: Path) -> None:
    assert "your account" in text(box_home, *GOOD, isolation="standard")
    assert "your account" not in text(box_home, *GOOD)


def test_a_kernel_without_a_proof_is_not_called_its_own(box_home: Path) -> None:
    lines = confinement_lines(box_home, vm(box_home), GOOD, None)
    assert lines[0].split() == ["kernel", "NOT", "PROVEN", "to", "be", "its", "own"]
