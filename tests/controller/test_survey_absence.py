"""A missing file: when it is an order to destroy, and when it proves nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.controller.desired import Order
from reconciler.controller.folder import Folder
from reconciler.controller.once import settled_survey
from reconciler.controller.survey import Surveyor, confirm_command
from reconciler.engine import records
from tests.controller.sleepers import GOOD, Sleepers, put
from tests.controller.surveying import look, surveyor_of, sync, three, wishes


class TestAbsence:
    """A1, A7, D1, D2, D5: a missing file destroys only where it proves something."""

    def test_one_removed_file_destroys_its_sandbox(self, engine: Sleepers, folder: Path) -> None:
        three(engine, folder)
        (folder / "b.Boxfile").unlink()
        survey = sync(engine, folder)
        assert wishes(survey)["b"].order is Order.DESTROY
        assert engine.names() == ("a", "c")

    def test_the_only_one_too(self, engine: Sleepers, folder: Path) -> None:
        put(folder / "web.Boxfile")
        sync(engine, folder)
        (folder / "web.Boxfile").unlink()
        sync(engine, folder)
        assert engine.names() == ()

    @pytest.mark.slow
    def test_all_at_once_are_held_until_confirmed(self, engine: Sleepers, folder: Path) -> None:
        three(engine, folder)
        for path in folder.iterdir():
            path.unlink()
        survey = sync(engine, folder)
        assert survey.ruling.held == {"a", "b", "c"}
        held = next(each for each in survey.conditions if each.type == "DeletionHeld")
        assert confirm_command(survey.scan, survey.ruling) in held.message
        assert all(engine.pid(name) for name in "abc")
        sync(engine, folder, "0123456789")
        assert len(engine.names()) == 3
        sync(engine, folder, survey.ruling.token)
        assert engine.names() == ()

    @pytest.mark.slow
    def test_holding_back_does_not_block_what_is_new(self, engine: Sleepers, folder: Path) -> None:
        three(engine, folder)
        for path in folder.iterdir():
            path.unlink()
        sync(engine, folder)
        for number in range(20):
            put(folder / f"new-{number}.Boxfile")
        survey = sync(engine, folder)
        assert engine.pid("new-7")
        # 3 of 23 alone would pass for an order; but they were held.
        assert survey.ruling.held == {"a", "b", "c"}
        put(folder / "a.Boxfile")
        assert sync(engine, folder).ruling.held == {"b", "c"}

    def test_one_that_was_there_between_two_looks_is_not_gone(
        self, engine: Sleepers, folder: Path
    ) -> None:
        three(engine, folder)
        file, aside = folder / "b.Boxfile", folder / "b.Boxfile~"
        now = [0.0]
        surveyor = Surveyor(engine, engine.home, Folder(folder), clock=lambda: now[0])
        file.rename(aside)
        for _ in range(40):
            assert surveyor.survey().ruling.reason == "Settling"
            # It comes back and goes again, and no look sees it.
            aside.rename(file)
            file.rename(aside)
            now[0] += 0.7
        now[0] += 0.7
        assert surveyor.survey().ruling.reason == "Settling"
        now[0] += 1.1
        assert wishes(surveyor.survey())["b"].order is Order.DESTROY

    def test_a_folder_that_never_rests_keeps_no_sandbox_for_ever(
        self, engine: Sleepers, folder: Path
    ) -> None:
        three(engine, folder)
        (folder / "b.Boxfile").unlink()
        now = [0.0]
        surveyor = Surveyor(engine, engine.home, Folder(folder), clock=lambda: now[0])
        while wishes(surveyor.survey())["b"].order is not Order.DESTROY:
            (folder / "note").touch()
            (folder / "note").unlink()
            now[0] += 0.5
            assert now[0] < 40
        assert now[0] > 30

    def test_a_folder_that_is_gone(self, engine: Sleepers, folder: Path) -> None:
        three(engine, folder)
        shutil.rmtree(folder)
        survey = sync(engine, folder)
        assert [c.reason for c in survey.conditions] == ["SourceMissing"]
        assert len(engine.names()) == 3
        assert all(wish.order is Order.HOLD_TO for wish in survey.wishes)

    @pytest.mark.slow
    def test_another_folder_at_the_path(self, engine: Sleepers, folder: Path) -> None:
        three(engine, folder)
        folder.rename(folder.with_name("old"))
        put(folder / "a.Boxfile", GOOD + "cpus: 4\n")
        put(folder / "b.Boxfile")
        survey = sync(engine, folder)
        assert survey.ruling.reason == "SourceReplaced"
        assert survey.ruling.held == {"c"}
        record = engine.record("a")
        assert record
        assert record.spec.cpus == 4
        # With every file back nothing hangs on the old folder, and the new one is it from now on.
        put(folder / "c.Boxfile")
        sync(engine, folder)
        (folder / "c.Boxfile").unlink()
        sync(engine, folder)
        assert engine.names() == ("a", "b")

    def test_an_empty_file_system_mounted_over_it(self, engine: Sleepers, folder: Path) -> None:
        put(folder / "web.Boxfile")
        sync(engine, folder)
        # The same as an unmounted disk: an empty folder with another identity at the path.
        folder.rename(folder.with_name("disk"))
        folder.mkdir()
        assert sync(engine, folder).ruling.held == {"web"}
        assert engine.names() == ("web",)

    def test_without_a_memory_nothing_is_destroyed(self, engine: Sleepers, folder: Path) -> None:
        three(engine, folder)
        for path in (engine.home / "folders").glob("*.json"):
            path.unlink()
        (folder / "a.Boxfile").unlink()
        assert sync(engine, folder).ruling.held == {"a"}

    def test_a_file_that_cannot_be_read_is_not_absent(self, engine: Sleepers, folder: Path) -> None:
        three(engine, folder)
        (folder / "a.Boxfile").unlink()
        (folder / "a.Boxfile").symlink_to("nowhere")
        assert sync(engine, folder).ruling.destroy == frozenset()
        assert engine.pid("a")

    def test_absence_must_last(self, engine: Sleepers, folder: Path) -> None:
        three(engine, folder)
        now = 100.0
        surveyor = Surveyor(engine, engine.home, Folder(folder), lambda: now)
        (folder / "a.Boxfile").unlink()
        assert surveyor.survey().ruling.waiting == {"a"}
        now += 0.9
        (folder / "b.Boxfile").unlink()
        assert surveyor.survey().ruling.waiting == {"a", "b"}
        now += 0.9
        survey = surveyor.survey()
        assert survey.ruling.waiting == {"a", "b"}
        assert survey.look_again_seconds == pytest.approx(0.1)
        now += 0.2
        assert surveyor.survey().ruling.destroy == {"a", "b"}

    def test_protected_ones_stay(self, engine: Sleepers, folder: Path) -> None:
        put(folder / "web.Boxfile", GOOD + "protect: true\n")
        put(folder / "ok.Boxfile")
        sync(engine, folder)
        (folder / "web.Boxfile").unlink()
        wish = wishes(sync(engine, folder))["web"]
        assert wish.accepted.reason == "Protected"
        assert wish.faulty
        assert engine.pid("web")

    def test_what_no_folder_owns_is_left_alone(self, engine: Sleepers, folder: Path) -> None:
        three(engine, folder)
        mine = engine.record("a")
        assert mine
        records.keep_sandbox(
            engine.home, replace(mine, name="own", spec=replace(mine.spec, name="own"), folder=None)
        )
        survey = sync(engine, folder)
        assert "own" not in wishes(survey)
        assert engine.record("own")

    @pytest.mark.slow
    def test_a_destruction_that_fails_is_not_taken_back(
        self, engine: Sleepers, folder: Path
    ) -> None:
        three(engine, folder)
        (folder / "a.Boxfile").unlink()
        surveyor = surveyor_of(engine, folder)
        first = settled_survey(surveyor)
        surveyor.keep(first)
        (folder / "b.Boxfile").unlink()
        (folder / "c.Boxfile").unlink()
        second = look(engine, folder)
        assert second.ruling.destroy == {"a"}
        assert second.ruling.held == {"b", "c"}


class TestGit:
    """A4: nothing is destroyed while git changes the folder."""

    @pytest.fixture
    def tree(self, folder: Path) -> Path:
        subprocess.run(["git", "init", "-q", folder], check=True)
        return folder

    @pytest.mark.slow
    def test_deletions_wait_and_changes_do_not(self, engine: Sleepers, tree: Path) -> None:
        three(engine, tree)
        lock = tree / ".git" / "index.lock"
        lock.write_text("")
        (tree / "a.Boxfile").unlink()
        put(tree / "b.Boxfile", GOOD + "cpus: 4\n")
        survey = sync(engine, tree)
        assert survey.ruling.waiting == {"a"}
        assert survey.ruling.reason == "GitBusy"
        record = engine.record("b")
        assert record
        assert record.spec.cpus == 4
        lock.unlink()
        sync(engine, tree)
        assert engine.names() == ("b", "c")

    @pytest.mark.slow
    def test_a_lock_left_behind_is_told_and_can_be_overruled(
        self, engine: Sleepers, tree: Path
    ) -> None:
        three(engine, tree)
        lock = tree / ".git" / "index.lock"
        lock.write_text("")
        os.utime(lock, (time.time() - 120,) * 2)
        (tree / "a.Boxfile").unlink()
        survey = sync(engine, tree)
        kinds = {condition.type for condition in survey.conditions}
        assert {"StaleGitLock", "DeletionHeld"} <= kinds
        assert engine.pid("a")
        sync(engine, tree, survey.ruling.token)
        assert engine.names() == ("b", "c")

    def test_a_checkout_of_another_branch(self, engine: Sleepers, tree: Path) -> None:
        git = ["git", "-C", str(tree), "-c", "user.name=a", "-c", "user.email=a@b"]
        three(engine, tree)
        for command in (
            ["add", "."],
            ["commit", "-q", "-m", "three"],
            ["checkout", "-q", "-b", "two"],
            ["rm", "-q", "b.Boxfile"],
            ["commit", "-q", "-m", "two"],
        ):
            subprocess.run([*git, *command], check=True)
        sync(engine, tree)
        assert engine.names() == ("a", "c")
        pid = engine.pid("a")
        subprocess.run([*git, "checkout", "-q", "-"], check=True)
        sync(engine, tree)
        assert engine.names() == ("a", "b", "c")
        assert engine.pid("a") == pid
