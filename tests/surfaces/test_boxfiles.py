"""`box explain`, `box schema` and the help of the commands about Boxfiles."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from reconciler.surfaces.cli import app
from tests.surfaces.boxfiling import ARGV, REPO, Capture, box


def test_all_fields(capsys: Capture) -> None:
    assert app.main(["explain"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert any(row.startswith("ram_mib ") and " 2048 " in row for row in rows)
    assert any(row.startswith("mounts.host ") for row in rows)
    app.main(["explain", "-o", "json"])
    told = json.loads(capsys.readouterr().out)
    assert {each["field"] for each in told} >= {"version", "mounts.mode", "blueprint.users"}


def test_one_field(capsys: Capture) -> None:
    assert app.main(["explain", "network"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("network: Network\n")
    for part in (
        "allowed         bridge or none",
        "default         bridge",
        "change          restart:",
        "wider           to bridge",
        "on qemu         qemu has no bridge yet",
        "example         network: none",
    ):
        assert part in said


def test_one_field_as_json(capsys: Capture) -> None:
    app.main(["explain", "ram_mib", "-o", "json"])
    told = json.loads(capsys.readouterr().out)
    assert (told["field"], told["default"], told["examples"]) == ("ram_mib", 2048, [512])
    assert told["required"] is False
    assert told["change"]["effect"].startswith("restart")


def test_the_version_comes_with_the_promise(capsys: Capture) -> None:
    app.main(["explain", "version"])
    said = " ".join(capsys.readouterr().out.split())
    assert "A box of major version N reads every Boxfile version up to N" in said


@pytest.mark.parametrize("columns", ["1", "40", "500"])
def test_any_width(capsys: Capture, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for field in ("base", "mounts", "blueprint.write_files.content"):
        assert app.main(["explain", field]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines
        assert all(line == line.rstrip() for line in lines)


def test_a_field_that_is_none_ends_with_an_error(here: Path) -> None:
    done = box("explain", "memory", cwd=here)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.splitlines() == [
        'box: "memory" is not a field; did you mean ram_mib?',
        "hint: box explain",
    ]


def test_it_is_the_committed_one(here: Path) -> None:
    done = box("schema", cwd=here)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (REPO / "schemas/boxfile.schema.json").read_text()


def test_a_full_disk_is_told(here: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*ARGV, "schema"],
            cwd=here,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (125, "box: No space left on device\n")


@pytest.mark.parametrize("command", ["validate", "new", "explain", "schema"])
def test_help_teaches(command: str, capsys: Capture) -> None:
    app.main([command, "--help"])
    said = capsys.readouterr().out
    assert "Example:" in said or "hook" in said
    assert f"box {command}" in said
