"""What status, events, plan and ls print as JSON is by the committed schemas, whatever is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from reconciler.engine import drift, journal
from reconciler.engine.home import open_home, sandbox_directory
from reconciler.surfaces.cli import main
from reconciler.surfaces.schemas import texts
from tests.engine import specs
from tests.surfaces.by_schema import SCHEMAS, by_schema, validator

REPO = Path(main.__file__).parents[3]
ADVICE = "run the tests with BOX_UPDATE_SCHEMAS=1 and commit the result"
STOPPED = "base: builtin:busybox\nnetwork: none\nstate: stopped\n"

Box = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "desired"
    path.mkdir()
    return path


@pytest.fixture
def box(box_home: Path, folder: Path) -> Box:
    def run(*words: str) -> str:
        return subprocess.run(
            [sys.executable, "-I", str(REPO / "reconciler/__main__.py"), *words],
            env={"BOX_HOME": str(box_home), "BOX_DESIRED": str(folder), "PATH": "/usr/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        ).stdout

    return run


@pytest.mark.parametrize("name", texts())
def test_the_committed_schema_is_what_is_printed(name: str) -> None:
    if os.environ.get("BOX_UPDATE_SCHEMAS") == "1":
        (SCHEMAS / name).write_text(texts()[name])
    assert (SCHEMAS / name).read_text() == texts()[name], ADVICE
    jsonschema.Draft202012Validator.check_schema(json.loads(texts()[name]))


@pytest.mark.slow
def test_a_home_with_nothing_in_it(box: Box) -> None:
    assert by_schema("status", box("status", "-o", "json")) == {"folders": [], "sandboxes": []}
    assert by_schema("ls", box("ls", "-o", "json")) == []
    assert box("events", "-o", "json") == ""
    assert by_schema("plan", box("plan", "-o", "json"))["sandboxes"] == []


@pytest.mark.slow
def test_good_bad_broken_wider_and_gone(box: Box, box_home: Path, folder: Path) -> None:
    for name in ("gone", "going", "odd", "torn", "web"):
        (folder / f"{name}.Boxfile").write_text(STOPPED + "readonly: true\n")
    box("sync")
    (folder / "web.Boxfile").write_text(STOPPED + "readonly: false\n")
    (folder / "bad.Boxfile").write_text(STOPPED + "cpu: 1\n")
    (folder / "torn.Boxfile").write_text("base: [\n")
    (folder / "Boxfile.old").write_text("")
    (folder / "gone.Boxfile").unlink()
    (folder / "going.Boxfile").unlink()
    (box_home / "sandboxes" / "odd" / "record.json").write_text("{")
    planned = by_schema("plan", box("plan", "-o", "json"))
    kinds = {action["kind"] for each in planned["sandboxes"] for action in each["actions"]}
    assert "update" in kinds
    assert any(each["problems"] for each in planned["sandboxes"])
    assert planned["ignored"] == ["Boxfile.old"]
    for words in ([], [str(folder)]):
        found = by_schema("status", box("status", *words, "-o", "json"))
        assert {"bad", "web"} <= {each["name"] for each in found["sandboxes"]}
        assert len(found["folders"]) == 1
    listed = by_schema("ls", box("ls", "-o", "json"))
    assert next(each for each in listed if each["name"] == "odd")["running"] is None
    box("sync")
    events = [by_schema("event", line) for line in box("events", "-o", "json").splitlines()]
    assert {"Accepted"} <= {event["reason"] for event in events}


def test_a_folder_that_is_gone(box: Box, folder: Path) -> None:
    (folder / "web.Boxfile").write_text(STOPPED)
    box("sync")
    (folder / "web.Boxfile").unlink()
    folder.rmdir()
    (found,) = by_schema("status", box("status", "-o", "json"))["folders"]
    assert found["conditions"][0]["reason"] == "SourceMissing"


def test_events_of_every_kind_of_field(box: Box, box_home: Path) -> None:
    home = open_home()
    sandbox_directory(home, "web")
    drift.vanished(home, specs.vm(home))
    drift.resolved(home, specs.vm(home))
    journal.record(home, "", "Warning", "SourceMissing", "gone")
    journal.record(home, "web", "Warning", "WarmFailed", "no", details=None)
    journal.record(home, "web", "Normal", "Destroyed", "by command", with_data=False)
    journal.record(home, "web", "Normal", "Collected", "", snapshots=["key"])
    journal.record(home, "web", "Warning", "PassFailed", "x" * 2_000_000)
    events = [by_schema("event", line) for line in box("events", "-o", "json").splitlines()]
    assert len(events) == 7
    assert events[-1]["cut"] is True


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("status", '{"folders": []}'),
        ("status", '{"folders": [], "sandboxes": [], "more": 1}'),
        ("event", '{"time": "now"}'),
        ("plan", "{}"),
        ("ls", '[{"name": "web"}]'),
        ("ls", "{}"),
    ],
)
def test_what_is_never_printed_is_not_by_the_schema(name: str, text: str) -> None:
    assert not validator(name).is_valid(json.loads(text))
