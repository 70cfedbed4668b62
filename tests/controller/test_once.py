from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.controller.backoff import load_backoff
from reconciler.controller.folder import Folder
from reconciler.controller.once import (
    Converged,
    converge_once,
    held_folder,
    plan_once,
    settled_survey,
)
from reconciler.controller.report import all_reports, folder_report
from reconciler.controller.status import load_status
from reconciler.controller.survey import Survey, Surveyor
from reconciler.engine.outcome import Again, GaveUp
from reconciler.errors import BoxError, Missing
from tests.controller.sleepers import GOOD, Sleepers, put


def survey_of(engine: Sleepers, folder: Path) -> Survey:
    return settled_survey(Surveyor(engine, engine.home, Folder(folder)))


def sync(engine: Sleepers, folder: Path) -> dict[str, Converged]:
    surveyor = Surveyor(engine, engine.home, Folder(folder))
    survey = settled_survey(surveyor)
    surveyor.keep(survey)
    results = converge_once(engine, engine.home, survey, lambda _name, _text: None)
    return {result.wish.name: result for result in results}


def test_once_is_enough(engine: Sleepers, folder: Path) -> None:
    put(folder / "web.Boxfile")
    put(folder / "db.Boxfile", GOOD + "state: stopped\n")
    results = sync(engine, folder)
    assert not any(result.failed for result in results.values())
    assert [str(action.kind) for action in results["web"].actions] == ["update", "start"]
    assert engine.pid("web")
    assert not engine.pid("db")
    again = sync(engine, folder)
    assert all(result.actions == () for result in again.values())


def test_one_that_fails_does_not_hide_others(engine: Sleepers, folder: Path) -> None:
    for name in ("a", "b", "c"):
        put(folder / f"{name}.Boxfile")
    put(folder / "bad.Boxfile", "{")
    engine.outcomes["a"] = [GaveUp(BoxError("no kernel"))]
    engine.outcomes["b"] = [Again(5, BoxError("no room"))]
    results = sync(engine, folder)
    assert {name for name, result in results.items() if result.failed} == {"a", "b", "bad"}
    assert engine.pid("c")
    ready = results["a"].status.condition("Ready")
    assert ready
    assert "no kernel" in ready.message


def test_a_command_does_not_wait_for_the_backoff_but_counts(engine: Sleepers, folder: Path) -> None:
    put(folder / "web.Boxfile", GOOD + "state: stopped\n")
    sync(engine, folder)
    put(folder / "web.Boxfile")
    for level in (1, 2):
        engine.outcomes["web"] = [Again(5, BoxError("no room"))]
        sync(engine, folder)
        assert load_backoff(engine.home, "web").level == level
    sync(engine, folder)
    assert engine.pid("web")
    assert load_backoff(engine.home, "web").level == 0


def test_those_that_exist_come_first(engine: Sleepers, folder: Path) -> None:
    put(folder / "z.Boxfile")
    sync(engine, folder)
    put(folder / "a.Boxfile")
    engine.passes.clear()
    sync(engine, folder)
    assert [ran.name for ran in engine.passes] == ["z", "a"]


def test_a_plan_changes_nothing(engine: Sleepers, folder: Path) -> None:
    put(folder / "web.Boxfile", GOOD + "readonly: true\n")
    sync(engine, folder)
    put(folder / "web.Boxfile", GOOD + "readonly: false\n")
    put(folder / "new.Boxfile")
    before = sorted(path for path in engine.home.rglob("*"))
    planned = {each.wish.name: each for each in plan_once(engine, survey_of(engine, folder))}
    assert [str(each.kind) for each in planned["new"].actions] == ["update", "start"]
    assert any(each.widening == ("readonly",) for each in planned["web"].actions)
    assert sorted(path for path in engine.home.rglob("*")) == before


def test_a_folder_must_be_there(engine: Sleepers, folder: Path) -> None:
    with pytest.raises(Missing), held_folder(engine.home, Folder(folder / "none")):
        pass


class TestReport:
    def test_without_a_controller(self, engine: Sleepers, folder: Path) -> None:
        put(folder / "web.Boxfile")
        put(folder / "bad.Boxfile", "{")
        sync(engine, folder)
        found = folder_report(engine, engine.home, folder)
        assert found.controller_pid is None
        by_name = {each.wish.name: each.to_json() for each in found.sandboxes}
        assert by_name["web"]["pid"] == engine.pid("web")
        assert by_name["web"]["declared_state"] == "running"
        assert by_name["bad"]["running"] is False
        kept = load_status(engine.home, "web").condition("Ready")
        assert kept
        assert kept.to_json() in by_name["web"]["conditions"]

    def test_the_controller_is_named(self, engine: Sleepers, folder: Path) -> None:
        import os

        with held_folder(engine.home, Folder(folder)):
            found = folder_report(engine, engine.home, folder)
        assert found.controller_pid == os.getpid()

    def test_all_folders_of_a_home(self, engine: Sleepers, folder: Path) -> None:
        other = folder.with_name("other")
        put(folder / "a.Boxfile")
        put(other / "b.Boxfile")
        sync(engine, folder)
        sync(engine, other)
        folders, alone = all_reports(engine, engine.home)
        assert [each.path for each in folders] == [folder, other]
        assert alone == ()

    def test_looking_writes_nothing(self, engine: Sleepers, folder: Path) -> None:
        put(folder / "web.Boxfile")
        sync(engine, folder)
        folder_report(engine, engine.home, folder)
        path = engine.home / "sandboxes" / "web" / "status.json"
        before = path.stat().st_mtime_ns
        folder_report(engine, engine.home, folder)
        assert path.stat().st_mtime_ns == before
