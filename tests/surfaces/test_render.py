from __future__ import annotations

import json

import pytest

from reconciler.boxfile.problems import Problem
from reconciler.surfaces import render


def test_a_users_text_is_neither_markup_nor_escape(capsys: pytest.CaptureFixture[str]) -> None:
    render.table(("A", "B"), [("[red]x[/red]", "\x1b[31mred")])
    said = capsys.readouterr().out
    assert "[red]x[/red]" in said
    assert "\x1b" not in said
    assert "\\x1b[31mred" in said


def test_long_cells_are_not_cut_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    render.table(("WHY",), [("word " * 100,)])
    assert capsys.readouterr().out.count("word") == 100


def test_rows_as_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    values = [{"name": "web", "running": True, "pid": None}]
    render.rows(values, "text")
    heading, row = capsys.readouterr().out.splitlines()
    assert heading.split() == ["NAME", "RUNNING", "PID"]
    assert row.split() == ["web", "yes", "-"]
    render.rows(values, "json")
    assert json.loads(capsys.readouterr().out) == values


def test_no_rows(capsys: pytest.CaptureFixture[str]) -> None:
    render.rows([], "text")
    assert capsys.readouterr().out == ""
    render.rows([], "json")
    assert json.loads(capsys.readouterr().out) == []


def test_problems_have_all_their_parts() -> None:
    problem = Problem("a.Boxfile", 3, 1, "cpu", "unknown")
    assert render.problem_json(problem) == {
        "file": "a.Boxfile",
        "line": 3,
        "column": 1,
        "path": "cpu",
        "message": "unknown",
    }


def test_an_inspection_shows_every_fact(capsys: pytest.CaptureFixture[str]) -> None:
    facts = [{"promise": "uid", "want": "1", "have": "0", "verdict": "differs"}]
    proof = {"guest": {"release": "6.1", "boot_id": "ab"}, "proven_at": "today"}
    value = {"name": "web", "kernel_proof": proof, "frozen": None, "spec": {}, "facts": facts}
    render.inspection(value, "text")
    said = capsys.readouterr().out
    assert "differs" in said
    assert "uid" in said
    assert "guest: release 6.1, boot_id ab" in said
    assert "{" not in said
    assert "lost" not in said
    render.inspection({**value, "lost": ["web"]}, "text")
    assert "web: the record is broken or gone" in capsys.readouterr().out
    render.inspection(value, "json")
    assert json.loads(capsys.readouterr().out) == value
