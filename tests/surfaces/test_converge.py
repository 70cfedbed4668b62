"""`plan`, `sync`, `watch`, `status` and `events` as processes, with sandboxes that need no VM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.engine import chain_files, journal
from reconciler.engine.chain_check import Verified
from reconciler.surfaces.cli import main

REPO = Path(main.__file__).parents[3]
STOPPED = "base: builtin:busybox\nnetwork: none\nstate: stopped\n"
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Box:
    home: Path
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"BOX_HOME": str(self.home), "BOX_DESIRED": str(self.folder), "PATH": "/usr/bin"}

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-I", str(REPO / "reconciler/__main__.py"), *words]

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*words),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def json(self, *words: str) -> dict[str, Any]:
        value = json.loads(self(*words, "-o", "json").stdout)
        assert isinstance(value, dict)
        return value

    def put(self, name: str, text: str = STOPPED) -> Path:
        temporary = self.folder / ".new"
        temporary.write_text(text)
        return temporary.rename(self.folder / f"{name}.Boxfile")

    @contextmanager
    def watch(self) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            self.argv("watch"), env=self.environment, stderr=subprocess.PIPE, text=True
        ) as child:
            try:
                assert child.stderr is not None
                assert "log: " in child.stderr.readline()
                yield child
            finally:
                child.kill()


@pytest.fixture
def box(box_home: Path, tmp_path: Path) -> Box:
    folder = tmp_path / "desired"
    folder.mkdir()
    return Box(box_home, folder)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class TestPlan:
    def test_something_would_happen(self, box: Box) -> None:
        box.put("web")
        planned = box("plan")
        assert planned.returncode == 2
        assert "new Boxfile" in planned.stdout
        assert box("sync").returncode == 0
        assert box("plan").returncode == 0

    def test_bad_files_have_places(self, box: Box) -> None:
        path = box.put("bad", STOPPED + "cpu: 1\n")
        planned = box("plan")
        assert planned.returncode == 1
        assert f"{path}:4:1: " in planned.stderr
        (found,) = box.json("plan")["sandboxes"]
        assert found["problems"][0]["line"] == 4

    @pytest.mark.slow
    def test_wider_changes_are_marked(self, box: Box) -> None:
        box.put("web", STOPPED + "readonly: true\n")
        box("sync")
        box.put("web", STOPPED + "readonly: false\n")
        (row,) = (line for line in box("plan").stdout.splitlines() if "web" in line)
        assert row.startswith("!")
        assert "readonly" in row
        (found,) = box.json("plan")["sandboxes"]
        assert found["actions"][0]["widening"] == ["readonly"]

    @pytest.mark.parametrize("command", ["plan", "sync", "watch", "status"])
    @pytest.mark.slow
    def test_no_folder(self, box: Box, command: str) -> None:
        none = box.folder / "none"
        done = box(command, str(none))
        assert (done.returncode, done.stdout) == (125, "")
        assert f"There is no folder {none}." in done.stderr
        assert f"hint: name one that is there, or make it: mkdir {none}\n" in done.stderr
        none.touch()
        done = box(command, str(none))
        assert (done.returncode, done.stdout) == (125, "")
        assert f"{none} is no folder" in done.stderr

    @pytest.mark.slow
    def test_the_status_of_a_folder_that_is_gone_tells_what_is_left_of_it(self, box: Box) -> None:
        path = box.put("web")
        box("sync")
        path.unlink()
        box.folder.rmdir()
        told = box.json("status", str(box.folder))
        assert [each["name"] for each in told["sandboxes"]] == ["web"]
        assert told["folders"][0]["conditions"][0]["reason"] == "SourceMissing"

    @pytest.mark.slow
    def test_a_folder_that_others_can_write(self, box: Box) -> None:
        box.put("web")
        box("sync")
        box.folder.chmod(0o777)
        for words in (["plan"], ["sync"], ["watch"], ["up", "db"], ["build", "db"]):
            box.put("db")
            done = box(*words)
            assert done.returncode == 125, words
            assert f"{box.folder}: everybody can write it" in done.stderr
            assert f"chmod o-w {box.folder}" in done.stderr
            assert "Traceback" not in done.stderr
        (folder,) = box.json("status")["folders"]
        assert folder["conditions"][0]["reason"] == "SourceUntrusted"
        assert f"chmod o-w {box.folder}" in box("status").stdout
        checked = box("validate", str(box.folder))
        assert (checked.returncode, f"chmod o-w {box.folder}" in checked.stderr) == (1, True)
        assert [each["name"] for each in json.loads(box("ls", "-o", "json").stdout)] == ["web"]

    def test_a_file_that_others_can_write(self, box: Box) -> None:
        box.put("web")
        box.put("db").chmod(0o666)
        done = box("sync")
        assert done.returncode == 1
        assert "db: Untrusted: can be changed by others: everybody can write it" in done.stderr
        assert [each["name"] for each in json.loads(box("ls", "-o", "json").stdout)] == ["web"]


class TestSync:
    def test_one_bad_file_does_not_hide_the_rest(self, box: Box) -> None:
        box.put("web")
        box.put("bad", "{")
        synced = box("sync")
        assert synced.returncode == 1
        found = {each["name"]: each for each in box.json("status")["sandboxes"]}
        assert found["web"]["declared_state"] == "stopped"

    def test_the_shape_of_its_json(self, box: Box) -> None:
        box.put("web")
        value = box.json("sync")
        assert set(value) == {"folder", "conditions", "ignored", "sandboxes"}
        (web,) = value["sandboxes"]
        assert set(web) == {
            "name", "source", "accepted", "reason", "message", "problems", "actions", "state",
            "confined", "ready", "conditions",
        }  # fmt: skip
        assert web["ready"] is True
        assert set(web["conditions"][0]) == {
            "type", "status", "reason", "message", "observed_generation", "last_transition_time",
        }  # fmt: skip

    @pytest.mark.slow
    def test_a_mass_deletion_needs_its_word(self, box: Box) -> None:
        paths = [box.put(name) for name in ("a", "b")]
        box("sync")
        for path in paths:
            path.unlink()
        held = box("sync")
        assert held.returncode == 1
        command = held.stderr[held.stderr.index("box sync --confirm-deletes") :].split()
        assert box("sync", "--confirm-deletes", "wrong", str(box.folder)).returncode == 125
        assert len(box.json("status")["sandboxes"]) == 2
        confirmed = box(*command[1:])
        assert confirmed.returncode == 0, confirmed
        assert box.json("status")["sandboxes"] == []

    @pytest.mark.slow
    def test_removing_one_destroys_it(self, box: Box) -> None:
        path = box.put("web")
        box("sync")
        path.unlink()
        synced = box("sync")
        assert synced.returncode == 0, synced
        assert "destroy" in synced.stdout


class TestWatch:
    @pytest.mark.slow
    def test_it_follows_the_folder_and_ends_in_order(self, box: Box) -> None:
        with box.watch() as child:
            path = box.put("web")
            until(lambda: box.json("status", str(box.folder))["sandboxes"])
            until(lambda: "Accepted" in box("events", "web").stdout)
            status = box.json("status", str(box.folder))
            assert status["folders"][0]["controller_pid"] == child.pid
            path.unlink()
            until(lambda: "Destroyed" in box("events", "web").stdout)
            child.send_signal(signal.SIGTERM)
            assert child.wait(60) == 0

    @pytest.mark.slow
    def test_the_second_is_refused_with_who_is_first(self, box: Box) -> None:
        with box.watch() as child:
            for command in ("watch", "sync"):
                second = box(command)
                assert second.returncode == 125
                assert str(child.pid) in second.stderr
            assert box("plan").returncode == 0
            child.send_signal(signal.SIGINT)
            assert child.wait(60) == 0
        assert box("sync").returncode == 0

    @pytest.mark.slow
    def test_without_inotify_it_scans(self, box: Box) -> None:
        """A10: in a user namespace of its own, where the limit of watches is none."""
        limited = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$@"'
        with subprocess.Popen(
            ["unshare", "-Ur", "sh", "-c", limited, "sh", *box.argv("watch")],
            env=box.environment,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            try:
                assert child.stderr is not None
                assert any("scanning every second" in line for line in child.stderr)
                box.put("web")
                until(lambda: "Accepted" in box("events", "web").stdout)
            finally:
                child.kill()

    @pytest.mark.slow
    def test_a_confirmation_is_handed_to_it(self, box: Box) -> None:
        paths = [box.put(name) for name in ("a", "b")]
        box("sync")
        with box.watch():
            for path in paths:
                path.unlink()
            until(lambda: "DeletionHeld" in str(box.json("status", str(box.folder))))
            said = box("plan").stderr
            command = said[said.index("box sync --confirm-deletes") :].split()
            assert box("sync", "--confirm-deletes", "wrong").returncode == 125
            handed = box(*command[1:])
            assert handed.returncode == 0
            assert "handed to the controller" in handed.stdout
            until(lambda: box.json("status", str(box.folder))["sandboxes"] == [])

    def test_killed_it_leaves_nothing_in_the_way(self, box: Box) -> None:
        with box.watch() as child:
            os.kill(child.pid, signal.SIGKILL)
            child.wait(60)
        box.put("web")
        assert box("sync").returncode == 0


class TestEvents:
    def test_one_object_a_line(self, box: Box) -> None:
        box.put("web")
        box.put("db")
        box("sync")
        lines = box("events", "web", "-o", "json").stdout.splitlines()
        assert lines
        assert {json.loads(line)["sandbox"] for line in lines} == {"web"}

    @pytest.mark.slow
    def test_following(self, box: Box) -> None:
        box.put("web")
        box("sync")
        with subprocess.Popen(
            box.argv("events", "--follow", "-o", "json"),
            env=box.environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            assert json.loads(child.stdout.readline())["sandbox"] == "web"
            box.put("db")
            box("sync")
            assert any(json.loads(line)["sandbox"] == "db" for line in child.stdout)
            child.kill()

    @pytest.mark.slow
    def test_the_chain_is_checked(self, box: Box) -> None:
        assert box("events", "--verify").stdout.startswith("0 events")
        box.put("web")
        box.put("db")
        box("sync")
        done = box("events", "--verify")
        assert (done.returncode, done.stdout.split()[0]) == (0, "2")
        file = str(box.home / "events.jsonl")
        assert "2 of 2 journals of sandboxes hold" in done.stdout
        whole = {**asdict(Verified(2)), "holds": True}
        journals = [
            {**asdict(Verified(1)), "holds": True, "sandbox": name, "file": str(journal)}
            for name in ("db", "web")
            for journal in [box.home / "sandboxes" / name / "journal.jsonl"]
        ]
        assert box.json("events", "--verify") == {**whole, "file": file, "sandboxes": journals}
        lines = Path(file).read_text().splitlines(keepends=True)
        Path(file).write_text(lines[0].replace("Accepted", "Excepted") + lines[1])
        done = box("events", "--verify")
        assert done.returncode == 1
        assert f"line 2 of {file}" in done.stdout
        assert box("events", "--verify", "-o", "json").returncode == 1
        told = {**whole, "holds": False, "events": 1, "broken_line": 2}
        assert box.json("events", "--verify") == {**told, "file": file, "sandboxes": journals}

    @pytest.mark.slow
    def test_a_sandboxs_own_journal_is_checked_too(self, box: Box) -> None:
        box.put("web")
        box.put("db")
        box("sync")
        journal = box.home / "sandboxes" / "web" / "journal.jsonl"
        journal.write_text(journal.read_text().replace("Accepted", "Excepted"))
        done = box("events", "--verify")
        assert done.returncode == 1
        assert f"web: line 1 of {journal} does not follow" in done.stdout
        assert "1 of 2 journals of sandboxes hold" in done.stdout
        journal.unlink()
        assert f"web: the end of {journal} is not where it was" in box("events", "--verify").stdout

    @pytest.mark.slow
    def test_what_was_dropped_and_what_is_gone_are_told_apart(self, box: Box) -> None:
        box("status")
        for _ in range(60):
            journal.record(box.home, "web", "Normal", "Tested", "x" * 900_000)
        done = box("events", "--verify")
        assert done.returncode == 0
        assert "older events, from before 20" in done.stdout
        assert "were dropped by box" in done.stdout
        assert len(box("events", "-o", "json").stdout.splitlines()) == int(done.stdout.split()[0])
        gone = box.home / f"events.{chain_files.older_numbers(box.home / 'events.jsonl')[0]}.jsonl"
        gone.unlink()
        done = box("events", "--verify")
        assert done.returncode == 1
        assert f"{gone} is gone, and box did not drop it" in done.stdout

    def test_following_goes_on_when_the_file_becomes_an_older_one(self, box: Box) -> None:
        box("status")
        journal.record(box.home, "web", "Normal", "Tested", "0")
        with subprocess.Popen(
            box.argv("events", "web", "--follow", "-o", "json"),
            env=box.environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            assert json.loads(child.stdout.readline())["message"] == "0"
            for _ in range(12):
                journal.record(box.home, "db", "Normal", "Tested", "x" * 900_000)
            journal.record(box.home, "web", "Normal", "Tested", "1")
            assert (box.home / "events.1.jsonl").exists()
            assert json.loads(child.stdout.readline())["message"] == "1"
            child.kill()
