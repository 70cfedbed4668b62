"""The security report: on one screen, safe to print, by its schema, and red for what is not so."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from reconciler.confinement.facts import Verdict
from reconciler.confinement.policy import BindMount
from reconciler.confinement.promises import Promise
from reconciler.confinement.reading import Reading, Unreadable
from reconciler.engine import contact
from reconciler.engine.freezing import Frozen
from reconciler.engine.records import ONCE, WARM
from reconciler.engine.security_report import STARTING, Checked, SecurityReport
from reconciler.engine.spec import HostMount
from reconciler.surfaces.security_report import document, text
from reconciler.surfaces.security_report.lines import draw
from tests.confinement.readings import HOST, POLICY, READING, process
from tests.confinement.test_judging import DIFFERENT, UNREADABLE
from tests.engine.specs import spec
from tests.surfaces.security_reports import PROVEN, READ_AT, checked, down, report, vm

SCHEMAS = Path(__file__).parents[2] / "schemas"
SCHEMA = json.loads((SCHEMAS / "security-report.schema.json").read_text())
VOID = replace(READING, void="the process is gone", processes=())
STANDARD = vm(spec=spec(isolation="standard"))
POOL = tuple(vm(vm=f"web.0000000{n}", kind=WARM, data=None) for n in range(8))
WRONG_POOL = tuple(replace(each, facts=checked(VOID)) for each in POOL)

EVERY_WAY = tuple(
    replace(fact, verdict=Verdict.DIFFERS, have=f"{number} and more " * 40)
    for number, fact in enumerate(checked(READING))
)

REPORTS: dict[str, SecurityReport] = {
    "as promised": report(),
    "standard": report(STANDARD),
    "down": report(down()),
    "down, KVM not tried": report(down(accelerator="", emulated_because="")),
    "on KVM": report(vm(accelerator="kvm", emulated_because="")),
    "nothing readable": report(vm(VOID)),
    "different in every way": report(vm(facts=EVERY_WAY)),
    "policy lost": report(vm(VOID, policy=None)),
    "starting": report(vm(state=STARTING, who=None, policy=None, boundary=None, facts=())),
    "eight waiting": report(vm(), *POOL),
    "eight wrong": report(vm(VOID), *WRONG_POOL),
    "lost": report(vm(), lost=tuple(f"web.{n:08x}" for n in range(40))),
    "nothing but lost": SecurityReport("web", "2026-12-01T10:00:00.000Z", (), ("web.1",)),
    "long paths": report(vm(source="/h" * 500, data=(Path("/d" * 500), 1 << 40))),
    "boundary changed": report(
        vm(boundary=replace(PROVEN, have="VMM changed since", verdict=Verdict.DIFFERS))
    ),
    "frozen": report(
        vm(
            frozen=Frozen(
                READ_AT, "limit.pids: want 64, have no limit", contact.DIFFERED, stands=True
            )
        )
    ),
    "paused": report(vm(frozen=Frozen(READ_AT, "42 MiB free", contact.NO_SPACE, stands=True))),
    "to be frozen": report(vm(frozen=Frozen("", "", contact.DIFFERED, stands=False))),
    "of a run": report(down(), vm(vm="web.00000001", kind=ONCE)),
}
BROKEN = [*DIFFERENT, *UNREADABLE]


def said(shown: SecurityReport) -> str:
    return "\n".join(line.text for line in text.lines(shown))


def strict_schema() -> dict[str, Any]:
    """The published schema with every object closed: what box prints, it documents."""

    def close(part: Any) -> Any:  # noqa: ANN401 - any JSON
        if isinstance(part, dict):
            closed = {key: close(each) for key, each in part.items()}
            return {**closed, "additionalProperties": False} if "properties" in part else closed
        return [close(each) for each in part] if isinstance(part, list) else part

    closed: dict[str, Any] = close(SCHEMA)
    return closed


STRICT = jsonschema.Draft202012Validator(strict_schema())


@pytest.mark.parametrize("shown", REPORTS.values(), ids=list(REPORTS))
def test_it_fits_one_screen_and_its_schema(shown: SecurityReport) -> None:
    lines = text.lines(shown)
    assert len(lines) <= 39
    assert max(len(line.text) for line in lines) <= 80
    STRICT.validate(json.loads(json.dumps(document.document(shown))))


@pytest.mark.parametrize(("broken", "reading"), BROKEN)
def test_what_is_not_so_is_named_with_where_to_look(broken: str, reading: Reading) -> None:
    shown = report(vm(reading))
    whole = said(shown)
    assert shown.failed
    assert f"NOT AS PROMISED: {len(shown.vms[0].failed)} of" in whole
    assert broken in " ".join(whole.split())
    assert len(whole.splitlines()) <= 39
    (fact,) = [each for each in document.document(shown)["vms"][0]["facts"] if each["id"] == broken]
    assert fact["verdict"] in {"differs", "unreadable"}


@pytest.mark.parametrize(
    ("shown", "verdict", "failed"),
    [
        ("as promised", "same", False),
        ("down", "not_read", False),
        ("nothing readable", "unreadable", True),
        ("policy lost", "unreadable", True),
        ("lost", "unreadable", True),
        ("nothing but lost", "unreadable", True),
        ("boundary changed", "differs", True),
        ("eight waiting", "same", False),
        ("eight wrong", "unreadable", True),
    ],
)
def test_only_same_and_not_applicable_are_good(shown: str, verdict: str, failed: bool) -> None:  # noqa: FBT001
    assert document.document(REPORTS[shown])["verdict"] == verdict
    assert REPORTS[shown].failed is failed


def test_one_bad_waiting_vm_fails_the_whole() -> None:
    shown = report(vm(), *POOL[:7], replace(POOL[7], facts=checked(VOID)))
    assert shown.failed
    assert "web.00000007" in said(shown)
    assert "7 VMs, PID" in said(shown)


def test_what_a_kernel_lacks_is_no_failure() -> None:
    ours = {kind: each for kind, each in HOST.namespaces.items() if kind != "cgroup"}
    shown = report(vm(replace(READING, host=replace(HOST, namespaces=ours))))
    assert not shown.failed
    lacking = [f for f in shown.vms[0].facts if f.verdict is Verdict.NOT_APPLICABLE]
    assert "namespace.cgroup" in {fact.promise.id for fact in lacking}
    assert f"{len(lacking)} not applicable" in said(shown)


def test_the_first_lines_say_where_an_escape_lands_and_that_it_is_emulated() -> None:
    first = "\n".join(said(REPORTS["standard"]).splitlines()[:5])
    assert "standard" in first
    assert "YOUR ACCOUNT" in first
    assert "EMULATED" in first
    strict = said(REPORTS["as promised"])
    assert "lands in UID 300000, not in your account" in strict
    assert "ACCOUNT" not in strict
    assert "EMULATED" not in said(REPORTS["on KVM"])


def test_the_filter_that_the_kernel_holds_is_told_as_found() -> None:
    promise = Promise("seccomp.filter", "No filter lets through what no VMM needs.", "seccomp")
    fact = Checked(promise, "refuses all 30", f"refuses all 30: sha256 {'ab' * 32}", Verdict.SAME)
    others = tuple(each for each in checked(READING) if each.promise.id != promise.id)
    whole = said(report(vm(facts=(*others, fact))))
    assert "ab" * 32 in "".join(whole.split())
    assert len(whole.splitlines()) <= 39


def test_it_says_when_it_was_read_and_that_it_does_not_vouch_for_later() -> None:
    whole = " ".join(said(report()).split())
    assert "PID 50" in whole
    assert "tick 12345 of this boot" in whole
    assert "2026-12-01T10:00:00.000Z" in whole
    assert "does not vouch for later" in whole


def test_it_describes_the_configuration_of_the_launch_and_nothing_else() -> None:
    changed = replace(
        POLICY,
        pids_limit=7,
        capabilities=("CAP_CHOWN",),
        no_new_privileges=False,
        binds=(*POLICY.binds, BindMount("/home/me/src", "/src", read_only=False)),
    )
    whole = " ".join(said(report(down(changed))).split())
    assert "7 processes and threads" in whole
    assert "capabilities: CAP_CHOWN" in whole
    assert "no_new_privs OFF" in whole
    assert "/home/me/src at /src, WRITABLE" in whole
    both = BindMount("/src", "/src", read_only=False), BindMount("/opt/x", "/opt/x")
    declared = spec(mounts=(HostMount("/opt/x", "/opt/x"),))
    whole = " ".join(said(report(down(replace(POLICY, binds=both), spec=declared))).split())
    assert "host mounts: /src at /src, WRITABLE, /opt/x at /opt/x, read-only" in whole
    known = document.document(report(down(changed)))["vms"][0]["configuration"]
    assert {"source": "/home/me/src", "target": "/src", "read_only": False} in known["mounts"]


HOSTILE = "\x1b]0;pwned\x07\x1b[2J\nweb: as promised\u202e\x9b31m[red]x[/red]"


def test_no_text_of_a_guest_or_file_drives_the_terminal() -> None:
    lied = replace(process(), interfaces=Unreadable(HOSTILE))
    shown = report(
        vm(
            replace(READING, processes=(lied,)),
            emulated_because=HOSTILE,
            source=HOSTILE,
            data=(Path("/" + HOSTILE), 1),
            boundary=replace(PROVEN, have=HOSTILE, proven_at=HOSTILE),
        ),
        vm(VOID, vm=HOSTILE, kind=WARM),
        lost=(HOSTILE,),
    )
    for line in text.lines(shown):
        assert line.text.isprintable()
        assert not line.text.startswith("web: as promised")
        assert len(line.text) <= 80
    assert "\\x1b" in said(shown)


def test_colours_only_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    text.show(REPORTS["nothing readable"])
    assert "\x1b" not in capsys.readouterr().out
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, color_system="standard")
    draw(text.lines(REPORTS["nothing readable"]), console)
    assert "\x1b[1;31m" in screen.getvalue()


def test_the_schemas_are_schemas_and_open_for_more() -> None:
    for path in SCHEMAS.glob("security-*.json"):
        jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))
    newer = {**document.document(report()), "a_field_to_come": 1}
    jsonschema.Draft202012Validator(SCHEMA).validate(newer)
    with pytest.raises(jsonschema.ValidationError):
        STRICT.validate(newer)


def test_a_lost_vm_is_what_is_not_as_promised() -> None:
    assert said(REPORTS["nothing but lost"]).startswith(
        "web: NOT AS PROMISED: nothing can be told of 1 VMs\n"
    )
    assert "facts differ" not in said(REPORTS["lost"])
