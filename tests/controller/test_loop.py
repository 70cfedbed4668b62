"""The loop on real files and processes: when a sandbox gets a pass, and when it does not."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from reconciler.controller.backoff import load_backoff
from reconciler.controller.folder import Folder
from reconciler.controller.lock import leave_confirmation
from reconciler.controller.once import settled_survey
from reconciler.controller.status import load_status
from reconciler.controller.survey import ABSENCE_SECONDS, Surveyor
from tests.controller.sleepers import GOOD, Sleepers, put, until
from tests.controller.watching import is_watched, running, watching


class TestFiles:
    """A file dropped, edited, stopped, removed: each at once."""

    def test_a_life(self, engine: Sleepers, folder: Path) -> None:
        with watching(engine, folder):
            path = put(folder / "web.Boxfile")
            running(engine, "web")
            put(path, GOOD + "cpus: 4\n")
            until(lambda: "replace" in engine.kinds("web"))
            running(engine, "web")
            pid = engine.pid("web")
            put(path, GOOD + "cpus: 4\nenv:\n  A: b\n")
            until(lambda: engine.kinds("web")[-1] == "update")
            assert engine.pid("web") == pid
            put(path, GOOD + "cpus: 4\nstate: stopped\n")
            until(lambda: engine.pid("web") is None, "the stop")
            path.unlink()
            until(lambda: not engine.names(), "the destruction")

    def test_in_a_subfolder_that_is_new(self, engine: Sleepers, folder: Path) -> None:
        with watching(engine, folder):
            path = put(folder / "web" / "Boxfile")
            running(engine, "web")
            until(lambda: is_watched(path.parent), "a watch of the new folder")
            put(path, GOOD + "cpus: 4\n")
            until(lambda: "replace" in engine.kinds("web"))

    def test_one_bad_file_harms_nobody(self, engine: Sleepers, folder: Path) -> None:
        """B1, B2"""
        path = put(folder / "web.Boxfile")
        with watching(engine, folder) as controller:
            running(engine, "web")
            pid = engine.pid("web")
            put(folder / "bad.Boxfile", "{")
            put(path, "cpus: [")
            put(folder / "new.Boxfile")
            running(engine, "new")
            until(lambda: "about=web" in controller.log.getvalue())
            assert engine.pid("web") == pid

    def test_a_bad_file_survives_a_restart_of_the_controller(
        self, engine: Sleepers, folder: Path
    ) -> None:
        """B2"""
        path = put(folder / "web.Boxfile")
        with watching(engine, folder):
            running(engine, "web")
        pid = engine.pid("web")
        put(path, "cpus: [")
        with watching(engine, folder):
            until(lambda: load_status(engine.home, "web").condition("Ready"))
            until(lambda: "InvalidSpec" in str(load_status(engine.home, "web")))
            assert engine.pid("web") == pid

    def test_saving_by_renaming_a_hundred_times(self, engine: Sleepers, folder: Path) -> None:
        """A1"""
        with watching(engine, folder):
            for name in ("web", "web2", "web3", "web4", "web5"):
                path = put(folder / f"{name}.Boxfile")
                running(engine, name)
                passes, began = engine.count(name), time.monotonic()
                for _ in range(100):
                    path.rename(folder / f"{name}.Boxfile~")
                    put(path)
                # On a busy host it may be away for so long that its absence is to be believed.
                if time.monotonic() - began < ABSENCE_SECONDS:
                    break
            time.sleep(1.5)
            assert engine.kinds(name) == ["update", "start"]
            assert engine.count(name) <= passes + 2

    def test_a_storm_of_events(self, engine: Sleepers, folder: Path) -> None:
        """A15"""
        path = put(folder / "web.Boxfile")
        with watching(engine, folder):
            running(engine, "web")
            passes = engine.count("web")
            for _ in range(500):
                path.touch()
            time.sleep(0.5)
            assert engine.count("web") <= passes + 2
            assert engine.kinds("web") == ["update", "start"]

    def test_a_half_written_file(self, engine: Sleepers, folder: Path) -> None:
        """A2"""
        with watching(engine, folder), (folder / "new.Boxfile").open("w") as file:
            file.write("base: builtin:busybox\n")
            file.flush()
            time.sleep(0.3)
            assert engine.count("new") == 0
            file.write("network: none\n")
            file.flush()
            running(engine, "new")

    def test_the_swap_of_a_link(self, engine: Sleepers, folder: Path) -> None:
        """A3"""
        put(folder / "..1" / "ok.Boxfile")
        put(folder / "..2" / "ok.Boxfile", GOOD + "cpus: 4\n")
        (folder / "..data").symlink_to("..1")
        (folder / "ok.Boxfile").symlink_to("..data/ok.Boxfile")
        with watching(engine, folder):
            running(engine, "ok")
            (folder / "t").symlink_to("..2")
            (folder / "t").replace(folder / "..data")
            until(lambda: "replace" in engine.kinds("ok"))


class TestFolder:
    """A7, D1, D2: what happens to the folder itself."""

    @pytest.mark.slow
    def test_deleted_and_made_again(self, engine: Sleepers, folder: Path) -> None:
        put(folder / "a.Boxfile")
        put(folder / "b.Boxfile")
        with watching(engine, folder) as controller:
            running(engine, "a", "b")
            pids = engine.pid("a"), engine.pid("b")
            folder.rename(folder.with_name("old"))
            until(lambda: "SourceMissing" in controller.log.getvalue())
            put(folder / "a.Boxfile")
            until(lambda: "SourceReplaced" in controller.log.getvalue())
            assert (engine.pid("a"), engine.pid("b")) == pids
            put(folder / "b.Boxfile", GOOD + "cpus: 4\n")
            until(lambda: "replace" in engine.kinds("b"))
            assert engine.pid("a") == pids[0]

    @pytest.mark.slow
    def test_a_mass_deletion_waits_for_its_word(self, engine: Sleepers, folder: Path) -> None:
        names = [f"s{number}" for number in range(10)]
        for name in names:
            put(folder / f"{name}.Boxfile")
        with watching(engine, folder) as controller:
            running(engine, *names)
            for name in names[:4]:
                (folder / f"{name}.Boxfile").unlink()
            put(folder / "new.Boxfile")
            running(engine, "new")
            until(lambda: "DeletionHeld" in controller.log.getvalue())
            assert len(engine.names()) == 11
            survey = settled_survey(Surveyor(engine, engine.home, Folder(folder)))
            leave_confirmation(engine.home, folder, survey.ruling.token)
            until(lambda: len(engine.names()) == 7, "the confirmed deletion")

    def test_removed_while_the_controller_was_down(self, engine: Sleepers, folder: Path) -> None:
        """D5, E12"""
        put(folder / "a.Boxfile")
        put(folder / "b.Boxfile")
        with watching(engine, folder):
            running(engine, "a", "b")
        (folder / "a.Boxfile").unlink()
        put(folder / "b.Boxfile", GOOD + "cpus: 4\n")
        with watching(engine, folder):
            until(lambda: engine.names() == ("b",), "the destruction")
            until(lambda: "replace" in engine.kinds("b"))

    def test_a_name_that_kills_the_watch(self, engine: Sleepers, folder: Path) -> None:
        """A12: the watch dies and is set up again."""
        with watching(engine, folder):
            put(folder / "web.Boxfile")
            running(engine, "web")
            (folder / os.fsdecode(b"\xff")).touch()
            for number in range(2):
                put(folder / f"later-{number}.Boxfile")
                running(engine, f"later-{number}")


class TestExits:
    """A VMM that ends is seen at once; a controller that ends takes nothing with it."""

    def test_killed_from_outside(self, engine: Sleepers, folder: Path) -> None:
        put(folder / "web.Boxfile")
        with watching(engine, folder):
            running(engine, "web")
            until(lambda: load_status(engine.home, "web").condition("Running"))
            pid = engine.pid("web")
            assert pid
            os.kill(pid, signal.SIGKILL)
            # Long before the next resync.
            until(lambda: engine.kinds("web").count("start") == 2, "the restart")
            running(engine, "web")
            until(lambda: load_backoff(engine.home, "web").level == 1)

    def test_killed_again_it_waits(self, engine: Sleepers, folder: Path) -> None:
        """E5, E6"""
        put(folder / "web.Boxfile")
        with watching(engine, folder):
            running(engine, "web")
            until(lambda: load_status(engine.home, "web").condition("Running"))
            os.kill(engine.pid("web") or 0, signal.SIGKILL)
            until(lambda: load_backoff(engine.home, "web").level == 1)
            running(engine, "web")
            os.kill(engine.pid("web") or 0, signal.SIGKILL)
            time.sleep(1)
            assert engine.pid("web") is None
            put(folder / "web.Boxfile", GOOD + "cpus: 3\n")
            running(engine, "web")

    def test_a_restart_adopts_and_starts_nothing(self, engine: Sleepers, folder: Path) -> None:
        """E2, E3"""
        put(folder / "web.Boxfile")
        with watching(engine, folder):
            running(engine, "web")
        pid = engine.pid("web")
        assert pid
        done = len(engine.done)
        with watching(engine, folder):
            until(lambda: engine.count("web") >= 2)
            assert engine.pid("web") == pid
            assert len(engine.done) == done
            os.kill(pid, signal.SIGKILL)
            until(lambda: engine.kinds("web").count("start") == 2, "the restart")
