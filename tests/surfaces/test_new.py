"""`box new`: a file that is whole, good, and never in place of another."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from pathlib import Path

import pytest

from reconciler.boxfile.loader import read
from reconciler.boxfile.schema import schema_text
from reconciler.errors import BoxError
from reconciler.surfaces import creation
from reconciler.surfaces.cli import app
from tests.surfaces.boxfiling import ARGV, Capture, box, put, validated


def test_it_is_there_good_and_said_with_what_comes_next(here: Path, capsys: Capture) -> None:
    assert app.main(["new", "web"]) == 0
    said = capsys.readouterr()
    assert said.out == "desired/web.Boxfile\n"
    assert said.err.splitlines() == [
        "made the folder desired",
        "  box validate desired/web.Boxfile",
        "  box run web -- uname -a",
        "  box up web",
    ]
    assert validated(capsys, "desired")["desired/web.Boxfile"]["valid"]
    names = {path.name for path in (here / "desired").iterdir()}
    assert names == {"web.Boxfile", ".boxfile.schema.json"}
    assert (here / "desired/.boxfile.schema.json").read_text() == schema_text()
    first = (here / "desired/web.Boxfile").read_text().splitlines()[0]
    assert first.endswith("$schema=.boxfile.schema.json")


def test_json(here: Path, capsys: Capture) -> None:
    assert app.main(["new", "web", "--from", "tiny-alpine", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == str(here / "desired/web.Boxfile")
    assert (told["name"], told["example"]) == ("web", "tiny-alpine")
    assert any(line.startswith("podman pull docker.io/") for line in told["next"])


def test_box_desired_is_the_folder(
    here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOX_DESIRED", str(here / "mine"))
    assert app.main(["new", "web"]) == 0
    assert capsys.readouterr().out == "mine/web.Boxfile\n"
    assert (here / "mine/web.Boxfile").is_file()


def test_another_folder_must_be_there_and_the_next_commands_name_it(
    here: Path, capsys: Capture
) -> None:
    with pytest.raises(BoxError, match="no folder"):
        app.main(["new", "web", "--dir", "a b"])
    assert list(here.iterdir()) == []
    (here / "a b").mkdir()
    assert app.main(["new", "web", "--dir", "a b"]) == 0
    assert "  BOX_DESIRED='a b' box up web" in capsys.readouterr().err.splitlines()


def unread(path: Path) -> tuple[int, ...]:
    """What of lstat(2) reading a file, or following a link, leaves as it was."""
    found = path.lstat()
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@pytest.mark.parametrize("taken", ["web.Boxfile", "web/Boxfile"])
@pytest.mark.parametrize("kind", ["file", "empty", "link", "broken link", "fifo"])
def test_nothing_is_overwritten(here: Path, taken: str, kind: str) -> None:
    path = here / "desired" / taken
    path.parent.mkdir(parents=True)
    elsewhere = put(here / "elsewhere", "mine")
    match kind:
        case "file":
            path.write_text("mine")
        case "empty":
            path.touch()
        case "fifo":
            os.mkfifo(path)
        case _:
            path.symlink_to(elsewhere if kind == "link" else "nowhere")
    before = unread(path)
    with pytest.raises(BoxError, match="is there already"):
        app.main(["new", "web"])
    assert unread(path) == before
    assert elsewhere.read_text() == "mine"
    assert not (here / "desired/.boxfile.schema.json").exists()
    assert not (here / "desired/nowhere").exists()


@pytest.mark.parametrize("name", ["Web", "all", "../web", "a/b", "", "-", "é", "a" * 64])
def test_a_name_is_a_name(here: Path, name: str) -> None:
    with pytest.raises(BoxError, match="name"):
        app.main(["new", "--", name])
    assert list(here.iterdir()) == []


def test_without_a_name_it_tells_how(here: Path) -> None:
    with pytest.raises(BoxError, match="Which name"):
        app.main(["new"])
    assert list(here.iterdir()) == []


def test_the_schema_is_written_only_when_it_is_another(here: Path) -> None:
    app.main(["new", "one"])
    schema = here / "desired/.boxfile.schema.json"
    before = unread(schema)
    app.main(["new", "two"])
    assert unread(schema) == before
    for wrong in ("{}", schema_text()[:-1] + " "):
        schema.write_text(wrong)
        app.main(["new", f"after-{len(wrong)}"])
        assert schema.read_text() == schema_text()


@pytest.mark.parametrize("text", ["mine", schema_text()])
def test_a_schema_that_is_a_link_is_replaced_not_followed(here: Path, text: str) -> None:
    (here / "desired").mkdir()
    elsewhere = put(here / "elsewhere", text)
    schema = here / "desired/.boxfile.schema.json"
    schema.symlink_to(elsewhere)
    app.main(["new", "one"])
    assert elsewhere.read_text() == text
    assert not schema.is_symlink()
    assert schema.read_text() == schema_text()


def test_a_schema_that_is_a_fifo_holds_nobody_up(here: Path) -> None:
    (here / "desired").mkdir()
    schema = here / "desired/.boxfile.schema.json"
    os.mkfifo(schema)
    app.main(["new", "two"])
    assert schema.is_file()


def test_a_file_that_comes_after_the_look_and_before_ours_stays(here: Path) -> None:
    folder = here / "desired"
    folder.mkdir()

    class Text(str):
        """Its bytes are asked for between the two."""

        def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
            put(folder / "web.Boxfile", "theirs")
            return super().encode(encoding, errors)

    with pytest.raises(BoxError, match="is there already"):
        creation.new_boxfile(folder, "web", Text("ours"), schema_text(), make_folder=True)
    assert (folder / "web.Boxfile").read_text() == "theirs"
    assert {path.name for path in folder.iterdir()} == {"web.Boxfile", ".boxfile.schema.json"}


def test_two_at_once_one_wins(here: Path) -> None:
    (here / "desired").mkdir()
    both = [
        subprocess.Popen(
            [*ARGV, "new", "web", "--from", name],
            cwd=here,
            env={"PATH": "/usr/bin"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for name in ("tiny-node", "tiny-python", "offline", "go-build")
    ]
    said = [each.communicate(timeout=60) for each in both]
    assert sorted(each.returncode for each in both) == [0, 125, 125, 125]
    assert sum(b"is there already" in err for _, err in said) == 3
    assert read((here / "desired/web.Boxfile").read_bytes(), source="").notes == ()
    names = {path.name for path in (here / "desired").iterdir()}
    assert names == {"web.Boxfile", ".boxfile.schema.json"}


@pytest.mark.parametrize("most_bytes", [0, 1000, len(schema_text()) - 1])
@pytest.mark.parametrize("folder", ["", "desired"])
def test_a_disk_that_is_full_leaves_nothing(here: Path, most_bytes: int, folder: str) -> None:
    (here / folder).mkdir(exist_ok=True)
    before = sorted(here.rglob("*"))

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    done = box("new", "web", cwd=here, prepare=few)
    assert done.returncode == 125
    assert done.stderr.startswith("box: ")
    assert "Traceback" not in done.stderr
    assert sorted(here.rglob("*")) == before


def test_room_for_the_schema_alone_leaves_nothing(here: Path) -> None:
    folder = here / "desired"
    folder.mkdir()
    text = "#" * (len(schema_text()) + 10)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(text) - 1, limit[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            creation.new_boxfile(folder, "web", text, schema_text(), make_folder=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert list(folder.iterdir()) == []


def test_a_folder_that_is_a_file_is_a_message(here: Path) -> None:
    put(here / "desired", "mine")
    done = box("new", "web", cwd=here)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith(f"box: {here}/desired is no folder.\n")
    assert (here / "desired").read_text() == "mine"


def test_what_is_written_is_one_file_that_others_may_read(here: Path) -> None:
    app.main(["new", "web"])
    for path in (here / "desired").iterdir():
        facts = path.stat()
        assert (facts.st_nlink, facts.st_mode & 0o777) == (1, 0o644)


def test_it_makes_no_home(here: Path) -> None:
    assert box("new", "web", cwd=here).returncode == 0
    assert not (here / "box-home").exists()
