"""What the doctor prints: one screen, failures first, by its schema, safe for a terminal."""

from __future__ import annotations

import copy
import io
import json
import os
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from reconciler.confinement.promises import PROMISES
from reconciler.engine.host.check import Check, failed, finding, ok
from reconciler.engine.host.floors import FLOORS
from reconciler.surfaces.doctor import text
from reconciler.surfaces.doctor.document import document, schema_text, works
from reconciler.surfaces.security_report.lines import draw
from tests.surfaces.doctors import HEALTHY, WORST, host

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "schemas" / "doctor.schema.json"
PAGE = ROOT / "docs" / "doctor.md"
BEGIN, END = (
    f"<!-- from reconciler/engine/host/floors.py: {each} -->\n" for each in ("begin", "end")
)
ADVICE = "run the tests with BOX_UPDATE_SCHEMAS=1 and commit the result"
EVERY = {"healthy": HEALTHY, "worst": WORST, "nothing": ()}


def updating() -> bool:
    return os.environ.get("BOX_UPDATE_SCHEMAS") == "1"


def said(checks: tuple[Check, ...]) -> list[str]:
    return [line.text for line in text.lines(checks)]


def test_the_committed_schema_is_the_documents() -> None:
    if updating():
        COMMITTED.write_text(schema_text())
    assert COMMITTED.read_text() == schema_text(), ADVICE


@pytest.mark.parametrize("checks", EVERY.values(), ids=EVERY)
def test_what_is_printed_is_by_the_schema(checks: tuple[Check, ...]) -> None:
    schema = json.loads(COMMITTED.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    value = json.loads(json.dumps(document(checks, ("IDs for me",))))
    jsonschema.validate(value, schema)


def test_the_schema_refuses_what_the_doctor_never_prints() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(COMMITTED.read_text()))
    good = json.loads(json.dumps(document(WORST, ())))
    bearing = next(n for n, each in enumerate(good["checks"]) if each["bearing"])
    for path, value in (
        (("version",), 2),
        (("checks", 0, "id"), "another"),
        (("checks", 0, "status"), "warning"),
        (("checks", 0, "more"), 1),
        (("checks", bearing, "bearing", "promises"), ["no.such.promise"]),
    ):
        bad = copy.deepcopy(good)
        place = bad
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        assert not validator.is_valid(bad)


def test_findings_work_and_failures_do_not() -> None:
    assert works(HEALTHY)
    assert works(host(host_smt=finding("shared", "off")))
    assert not works(host(disk=failed("full", "rm")))


def test_a_healthy_host_is_one_screen() -> None:
    shown = said(HEALTHY)
    assert len(shown) <= 24
    assert shown[0] == "As UID 1000: 0 failed, 0 findings, 29 ok"
    assert max(map(len, shown)) <= 80


def test_what_failed_is_first_then_what_was_found() -> None:
    shown = said(host(slots=failed("none", "usermod x"), host_cpu=finding("leaks", "update")))
    assert shown[1].startswith("FAILED   slots: none")
    assert shown[2] == "         fix: usermod x"
    assert "identity.uid" in " ".join(shown[3:6])
    (at,) = [number for number, line in enumerate(shown) if line.startswith("finding")]
    assert shown[at : at + 2] == ["finding  host.cpu: leaks", "         fix: update"]
    assert not [line for line in shown[:at] if line.startswith("ok")]


def test_every_check_is_on_the_screen() -> None:
    for checks in (HEALTHY, WORST):
        shown = " ".join(said(checks))
        assert [each.id for each in checks if each.id not in shown] == []


@pytest.mark.parametrize("hostile", ["\x1b[2Jgone", "a\nFAILED b", "\u202eabc", "[bold]x[/bold]"])
def test_what_a_host_says_cannot_drive_the_terminal(hostile: str) -> None:
    out = io.StringIO()
    checks = host(disk=failed(hostile, hostile), qemu=ok(hostile), host_cpu=finding(hostile, "x"))
    draw(text.lines(checks), Console(file=out, force_terminal=False, width=200))
    assert "\x1b" not in out.getvalue()
    assert "\u202e" not in out.getvalue()
    assert not [line for line in out.getvalue().splitlines() if line.startswith("FAILED b")]


def test_promises_are_named_by_their_ids_alone() -> None:
    listed = {each.id for each in PROMISES}
    for each in document(WORST, ())["checks"]:
        if each["bearing"]:
            assert set(each["bearing"]["promises"]) <= listed


def floors_table() -> str:
    lines = [
        "| program | hole | closed upstream in | what it does | box | source |",
        "|---|---|---|---|---|---|",
    ]
    for each in FLOORS:
        fixed = ", ".join(".".join(map(str, release)) for release in each.fixed)
        exposed = "exposed" if each.reached else "not exposed"
        cells = (
            each.component,
            " ".join(each.cves),
            fixed,
            each.what,
            f"{exposed}: {each.why}",
            each.source,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def test_the_page_lists_every_floor() -> None:
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    wanted = before + BEGIN + floors_table() + END + after
    if updating():
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted, ADVICE
