"""From files and records to wishes: what stays in force, what is taken away, what is held."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.controller.desired import Order
from tests.controller.sleepers import GOOD, Sleepers, put
from tests.controller.surveying import look, sync, three, wishes


class TestLastGood:
    """B2, B3, C3, A2: a file that turned bad leaves its sandbox as it was."""

    @pytest.mark.parametrize("text", ["", "cpus: [", "- a", GOOD + "cpu: 1\n", "\0\0\0"])
    def test_a_bad_edit(self, engine: Sleepers, folder: Path, text: str) -> None:
        put(folder / "web.Boxfile", GOOD + "cpus: 3\n")
        sync(engine, folder)
        pid = engine.pid("web")
        put(folder / "web.Boxfile", text)
        wish = wishes(sync(engine, folder))["web"]
        assert wish.faulty
        assert wish.order is Order.HOLD_TO
        assert wish.spec
        assert wish.spec.cpus == 3
        assert engine.pid("web") == pid

    def test_it_does_not_pass_for_the_file_that_was_read(
        self, engine: Sleepers, folder: Path
    ) -> None:
        put(folder / "web.Boxfile")
        sync(engine, folder)
        before = engine.record("web")
        put(folder / "web.Boxfile", "{")
        sync(engine, folder)
        assert engine.record("web") == before

    def test_a_new_bad_file_makes_nothing(self, engine: Sleepers, folder: Path) -> None:
        put(folder / "bad.Boxfile", "{")
        put(folder / "ok.Boxfile")
        found = wishes(sync(engine, folder))
        assert found["bad"].order is Order.LEAVE
        assert engine.names() == ("ok",)

    def test_a_killed_vm_is_started_from_the_last_good_spec(
        self, engine: Sleepers, folder: Path
    ) -> None:
        put(folder / "web.Boxfile")
        sync(engine, folder)
        put(folder / "web.Boxfile", "{")
        engine.children[0].kill()
        engine.children[0].wait()
        sync(engine, folder)
        assert engine.pid("web")


class TestConflict:
    """C6, C10: one name, two files."""

    def test_none_gets_a_new_name(self, engine: Sleepers, folder: Path) -> None:
        put(folder / "web.Boxfile")
        put(folder / "web" / "Boxfile")
        wish = wishes(sync(engine, folder))["web"]
        assert wish.accepted.reason == "Conflict"
        assert str(folder / "web" / "Boxfile") in wish.accepted.message
        assert wish.order is Order.LEAVE

    @pytest.mark.parametrize(
        ("first", "second"), [("web.Boxfile", "web/Boxfile")] * 1 + [("web/Boxfile", "web.Boxfile")]
    )
    def test_the_one_that_made_it_keeps_it(
        self, engine: Sleepers, folder: Path, first: str, second: str
    ) -> None:
        put(folder / first, GOOD + "cpus: 1\n")
        sync(engine, folder)
        pid = engine.pid("web")
        put(folder / second, GOOD + "cpus: 4\n")
        wish = wishes(sync(engine, folder))["web"]
        assert wish.accepted.reason == "Conflict"
        assert wish.faulty
        assert wish.spec
        assert wish.spec.cpus == 1
        assert engine.pid("web") == pid
        put(folder / first, GOOD + "cpus: 2\n")
        found = wishes(look(engine, folder))["web"].spec
        assert found
        assert found.cpus == 2

    def test_moving_the_file_is_nothing(self, engine: Sleepers, folder: Path) -> None:
        put(folder / "web.Boxfile")
        sync(engine, folder)
        pid = engine.pid("web")
        (folder / "web").mkdir()
        (folder / "web.Boxfile").rename(folder / "web" / "Boxfile")
        sync(engine, folder)
        assert engine.pid("web") == pid
        record = engine.record("web")
        assert record
        assert record.source == str(folder / "web" / "Boxfile")

    def test_a_name_of_another_folder_is_not_taken(self, engine: Sleepers, folder: Path) -> None:
        other = folder.with_name("other")
        put(other / "web.Boxfile", GOOD + "cpus: 4\n")
        put(folder / "web.Boxfile")
        sync(engine, folder)
        pid = engine.pid("web")
        wish = wishes(sync(engine, other))["web"]
        assert wish.order is Order.LEAVE
        assert str(folder / "web.Boxfile") in wish.accepted.message
        assert engine.pid("web") == pid

    def test_it_is_taken_when_the_other_file_is_gone(self, engine: Sleepers, folder: Path) -> None:
        put(folder / "web.Boxfile")
        sync(engine, folder)
        pid = engine.pid("web")
        moved = folder.with_name("moved")
        folder.rename(moved)
        sync(engine, moved)
        assert engine.pid("web") == pid
        record = engine.record("web")
        assert record
        assert record.folder == str(moved)


def test_a_record_that_cannot_be_read_is_that_sandboxs_trouble(
    engine: Sleepers, folder: Path
) -> None:
    three(engine, folder)
    (engine.home / "sandboxes" / "a" / "record.json").write_text("{")
    found = wishes(sync(engine, folder))
    assert found["a"].accepted.reason == "BrokenRecord"
    assert found["a"].order is Order.LEAVE
    assert found["b"].accepted.reason == "Valid"
