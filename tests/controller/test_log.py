from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.controller.log import News, open_log


def test_an_hour_of_the_same_is_few_lines() -> None:
    """E10"""
    now = 0.0
    news = News(lambda: now)
    told = []
    for _ in range(360):
        told.append(news.count("web", "file", "bad"))
        now += 10
    assert [count for count in told if count] == [1, 61, 181]


def test_something_else_is_told_at_once() -> None:
    news = News(lambda: 0.0)
    assert news.count("web", "file", "bad") == 1
    assert news.count("web", "file", "worse") == 1
    assert news.count("db", "file", "worse") == 1
    assert news.over("web", "file")
    assert not news.over("web", "file")
    assert news.count("web", "file", "worse") == 1


def test_the_file_has_json_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_log(tmp_path / "log") as log:
        log.warning("cannot", sandbox="web")
    (line,) = (tmp_path / "log").read_text().splitlines()
    event = json.loads(line)
    assert (event["event"], event["level"], event["sandbox"]) == ("cannot", "warning", "web")
    assert "cannot" in capsys.readouterr().err


def test_a_log_that_cannot_be_written_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_log(tmp_path / "no" / "log") as log:
        log.info("still here")
    said = capsys.readouterr().err
    assert "still here" in said
    assert "cannot log to" in said


def test_a_full_disk_stops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = tmp_path / "log"
    full.symlink_to("/dev/full")
    with open_log(full) as log:
        log.info("still here")
    said = capsys.readouterr().err
    assert "still here" in said
    assert "Traceback" not in said


def test_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    with open_log(tmp_path / "log") as log:
        for _ in range(400):
            log.info("x" * 10_000)
    files = list(tmp_path.iterdir())
    assert len(files) <= 3
    assert sum(file.stat().st_size for file in files) < 4 << 20
