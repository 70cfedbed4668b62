from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.controller.backoff import Backoff, load_backoff, save_backoff
from reconciler.engine.home import open_home, sandbox_directory

NOW = 1_000_000.0


def test_the_curve_doubles_to_five_minutes() -> None:
    backoff = Backoff("d")
    waits = []
    for _ in range(8):
        backoff = backoff.failed(NOW)
        waits.append(backoff.wait_seconds(NOW))
    assert waits == [10, 20, 40, 80, 160, 300, 300, 300]
    assert backoff.stalled


def test_the_first_start_and_the_first_restart_are_at_once() -> None:
    first = Backoff("d").started(NOW)
    assert first.wait_seconds(NOW) == 0
    restarted = first.started(NOW + 1)
    assert restarted.wait_seconds(NOW + 1) == 10
    assert restarted.started(NOW + 12).wait_seconds(NOW + 12) == 20


def test_ten_minutes_up_make_it_as_new() -> None:
    backoff = Backoff("d").started(NOW)
    for number in range(4):
        backoff = backoff.started(NOW + number)
    assert backoff.level == 4
    due = backoff.not_before
    assert backoff.healthy(due + 599).level == 4
    assert backoff.healthy(due + 601).level == 0
    assert backoff.started(NOW + 1000).level == 1


def test_another_spec_starts_afresh() -> None:
    backoff = Backoff("d").failed(NOW)
    assert backoff.for_spec("d") is backoff
    assert backoff.for_spec("e") == Backoff("e")


def test_a_clock_that_jumped_back_waits_no_longer_than_the_curve() -> None:
    assert Backoff("d").failed(NOW).wait_seconds(NOW - 1e6) == 300


def test_it_survives_a_restart(box_home: Path) -> None:
    home = open_home()
    assert home == box_home
    sandbox_directory(home, "web")
    backoff = Backoff("d").failed(NOW).failed(NOW)
    save_backoff(home, "web", backoff)
    assert load_backoff(home, "web") == backoff


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"digest": 1, "level": "x"}'])
def test_a_broken_file_is_a_fresh_start(box_home: Path, text: str) -> None:
    home = open_home()
    assert home == box_home
    (sandbox_directory(home, "web") / "backoff.json").write_text(text)
    assert load_backoff(home, "web") == Backoff()


def test_what_cannot_be_kept_is_no_error(box_home: Path) -> None:
    save_backoff(box_home, "never-made", replace(Backoff(), level=1))
