from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.boxfile.names import InvalidName
from reconciler.boxfile.problems import InvalidBoxfile
from reconciler.engine import records
from reconciler.engine.home import open_home
from reconciler.errors import Missing
from reconciler.linux import files
from reconciler.surfaces import declared

TEXT = "version: 1\nbase: builtin:busybox\nnetwork: none\nram_mib: 256\n"


@pytest.fixture
def home(box_home: Path) -> Path:
    return open_home()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "desired"
    path.mkdir()
    monkeypatch.setenv("BOX_DESIRED", str(path))
    return path


@pytest.mark.parametrize("place", ["web.Boxfile", "web/Boxfile"])
def test_a_new_name_is_looked_for_in_the_folder_and_recorded(
    home: Path, folder: Path, place: str
) -> None:
    path = folder / place
    path.parent.mkdir(exist_ok=True)
    path.write_text(TEXT)
    spec, source, owner = declared.sandbox(home, "web")
    assert (spec.name, spec.ram_mib, source, owner) == ("web", 256, path, None)
    record = records.sandbox_record(home, "web")
    assert record is not None
    assert (record.spec, record.source, record.incarnation) == (spec, str(path), 0)


def test_a_known_name_reads_its_file_only_when_that_changed(home: Path, folder: Path) -> None:
    path = folder / "web.Boxfile"
    path.write_text(TEXT)
    spec, _, _ = declared.sandbox(home, "web")
    record = records.sandbox_record(home, "web")
    assert record is not None
    # What the record says counts as long as the file is the same.
    marked = replace(record, spec=replace(spec, ram_mib=512), folder="/watched")
    records.keep_sandbox(home, marked)
    assert declared.sandbox(home, "web") == (marked.spec, path, "/watched")
    path.write_text(TEXT.replace("256", "300"))
    assert declared.sandbox(home, "web")[0].ram_mib == 300
    path.unlink()
    assert declared.sandbox(home, "web") == (marked.spec, path, "/watched")


def test_a_file_of_the_same_size_and_time_put_in_its_place_is_noticed(
    home: Path, folder: Path
) -> None:
    path = folder / "web.Boxfile"
    path.write_text(TEXT)
    facts = path.stat()
    declared.sandbox(home, "web")
    other = folder / "other"
    other.write_text(TEXT.replace("256", "300"))
    os.utime(other, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    other.rename(path)
    assert declared.sandbox(home, "web")[0].ram_mib == 300


def test_a_broken_file_is_told_and_leaves_the_record(home: Path, folder: Path) -> None:
    path = folder / "web.Boxfile"
    path.write_text(TEXT)
    declared.sandbox(home, "web")
    path.write_text(TEXT + "cpus: many\nbogus: 1\n")
    with pytest.raises(InvalidBoxfile) as caught:
        declared.sandbox(home, "web")
    assert f"{path}:5:" in str(caught.value)
    assert f"{path}:6:" in str(caught.value)
    assert records.sandbox_record(home, "web") is not None


def test_a_name_that_is_nowhere_is_told_with_the_folder(home: Path, folder: Path) -> None:
    with pytest.raises(Missing, match="no sandbox db") as caught:
        declared.sandbox(home, "db")
    assert str(folder) in str(caught.value)
    assert records.sandbox_names(home) == ()


@pytest.mark.parametrize("name", ["../web", "", "A", "box", "a/b"])
def test_a_name_is_a_name(home: Path, folder: Path, name: str) -> None:
    with pytest.raises(InvalidName):
        declared.sandbox(home, name)


def test_a_broken_record_gives_way_to_the_boxfile(home: Path, folder: Path) -> None:
    (folder / "web.Boxfile").write_text(TEXT)
    declared.sandbox(home, "web")
    path = home / "sandboxes/web/record.json"
    path.write_text("{}")
    spec, source, _ = declared.sandbox(home, "web")
    assert (spec.name, source) == ("web", folder / "web.Boxfile")
    assert path.read_text() == "{}"
    (folder / "web.Boxfile").unlink()
    with pytest.raises(files.BrokenFile, match="web"):
        declared.sandbox(home, "web")


def test_a_folder_that_is_not_named_is_desired_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BOX_DESIRED", raising=False)
    monkeypatch.chdir(tmp_path)
    assert declared.default_folder() == tmp_path / "desired"
    monkeypatch.setenv("BOX_DESIRED", "other")
    assert declared.default_folder() == tmp_path / "other"
