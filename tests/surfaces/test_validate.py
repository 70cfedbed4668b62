"""`box validate` through the command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reconciler.errors import BoxError
from reconciler.surfaces.cli import app
from tests.surfaces.boxfiling import BAD, GOOD, Capture, box, messages, put, validated


def test_all_errors_of_all_files_each_with_its_place(here: Path, capsys: Capture) -> None:
    put(here / "good.Boxfile")
    put(here / "bad.Boxfile", BAD)
    put(here / "worse.Boxfile", BAD)
    words = ["worse.Boxfile", "good.Boxfile", "gone.Boxfile", "bad.Boxfile"]
    assert app.main(["validate", *words]) == 1
    said = capsys.readouterr()
    assert said.out == "good.Boxfile: good\n"
    places = [line.split(" ")[0] for line in said.err.splitlines()]
    assert places == [
        "bad.Boxfile:3:1:",
        "bad.Boxfile:4:10:",
        "gone.Boxfile:1:1:",
        "worse.Boxfile:3:1:",
        "worse.Boxfile:4:10:",
    ]
    assert "cpu: is not a field; did you mean cpus?" in said.err
    assert "gone.Boxfile:1:1: cannot be read: No such file or directory" in said.err


def test_good_files_end_with_0(here: Path, capsys: Capture) -> None:
    put(here / "d/web.Boxfile")
    put(here / "d/db/Boxfile")
    assert app.main(["validate", "d"]) == 0
    assert capsys.readouterr() == ("d/db/Boxfile: good\nd/web.Boxfile: good\n", "")


def test_json_says_the_same(here: Path, capsys: Capture) -> None:
    put(here / "bad.Boxfile", BAD)
    put(here / "web.Boxfile")
    files = validated(capsys, "bad.Boxfile", "web.Boxfile")
    assert files["web.Boxfile"] == {
        "file": "web.Boxfile",
        "name": "web",
        "valid": True,
        "problems": [],
        "more_problems": False,
        "notes": [],
    }
    bad = files["bad.Boxfile"]
    assert (bad["name"], bad["valid"]) == ("bad", False)
    assert bad["problems"][0] == {
        "file": "bad.Boxfile",
        "line": 3,
        "column": 1,
        "path": "cpu",
        "message": "is not a field; did you mean cpus?",
    }
    assert [each["path"] for each in bad["problems"]] == ["cpu", "ram_mib"]


def test_a_folder_is_read_as_the_controller_reads_it(here: Path, capsys: Capture) -> None:
    folder = here / "d"
    put(folder / "web.Boxfile")
    put(folder / "db/Boxfile")
    put(folder / "deep/er/Boxfile")
    put(folder / ".hidden.Boxfile", BAD)
    put(folder / "web.Boxfile~", BAD)
    put(folder / "x.boxfile", BAD)
    put(folder / "y.Boxfile.bak", BAD)
    put(folder / "notes.txt", BAD)
    put(here / "outside", GOOD)
    (folder / "out.Boxfile").symlink_to(here / "outside")
    (folder / "gone.Boxfile").symlink_to("nowhere")
    (folder / "loop.Boxfile").symlink_to("loop.Boxfile")
    (folder / "dir.Boxfile").mkdir()
    os.mkfifo(folder / "fifo.Boxfile")
    (folder / "empty.Boxfile").touch()
    (folder / "huge.Boxfile").write_bytes(b"#" * (256 * 1024 + 1))
    (folder / os.fsdecode(b"\xff.Boxfile")).write_text(GOOD)
    files = validated(capsys, "d")
    good = {path for path, each in files.items() if each["valid"] and not each["notes"]}
    assert good == {"d/web.Boxfile", "d/db/Boxfile"}
    for path, why in {
        "d/out.Boxfile": "link out of the folder",
        "d/gone.Boxfile": "No such file",
        "d/loop.Boxfile": "symbolic links",
        "d/dir.Boxfile": "is a directory",
        "d/fifo.Boxfile": "is a FIFO",
        "d/empty.Boxfile": "is empty",
        "d/huge.Boxfile": "larger than 256 KiB",
        "d/\udcff.Boxfile": "cannot be the name",
    }.items():
        assert why in messages(files.pop(path)), path
    for path in ("d/x.boxfile", "d/y.Boxfile.bak"):
        assert files[path]["valid"]
        assert "box does not read a file of this name" in messages(files[path], "notes")
    assert files.keys() - good == {"d/x.boxfile", "d/y.Boxfile.bak"}


def test_names_that_cannot_be_are_errors_and_the_text_is_checked_too(
    here: Path, capsys: Capture
) -> None:
    for name in ("Upper", "all", "-dash", "a" * 64, "two words", "dot.ted"):
        put(here / f"d/{name}.Boxfile", BAD)
    put(here / "d/Down/Boxfile", BAD)
    for words in (["d"], [str(path.relative_to(here)) for path in here.rglob("*Boxfile")]):
        files = validated(capsys, *words)
        assert len(files) == 7
        for each in files.values():
            first, *rest = each["problems"]
            assert "name" in first["message"]
            assert "\n" not in first["message"]
            assert [problem["path"] for problem in rest] == ["cpu", "ram_mib"]


def test_two_files_of_one_name_are_errors_of_both(here: Path, capsys: Capture) -> None:
    put(here / "d/web.Boxfile")
    put(here / "d/web/Boxfile")
    put(here / "e/web.Boxfile")
    for words in (["d", "e"], ["d/web.Boxfile", "e/web.Boxfile", "d/web/Boxfile"]):
        files = validated(capsys, *words)
        assert files["e/web.Boxfile"]["valid"]
        assert "d/web/Boxfile" in messages(files["d/web.Boxfile"])
        assert "d/web.Boxfile" in messages(files["d/web/Boxfile"])


def test_one_file_given_in_several_ways_is_one(here: Path, capsys: Capture) -> None:
    put(here / "d/web.Boxfile")
    (here / "link").symlink_to("d")
    words = ["d/web.Boxfile", "./d/web.Boxfile", "d", f"{here}/d", "link", "d/../d/web.Boxfile"]
    assert validated(capsys, *words).keys() == {"d/web.Boxfile"}


def test_a_named_file_of_another_name_is_checked_with_a_note(here: Path, capsys: Capture) -> None:
    put(here / "web.yaml")
    put(here / "bad.yaml", BAD)
    files = validated(capsys, "web.yaml", "bad.yaml")
    assert files["web.yaml"]["valid"]
    assert files["web.yaml"]["name"] is None
    assert len(files["bad.yaml"]["problems"]) == 2
    for each in files.values():
        assert "box does not read a file of this name" in messages(each, "notes")
    assert app.main(["validate", "web.yaml"]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("web.yaml:1:1: note: box does not read")
    assert said.out == "web.yaml: good\n"


def test_a_backend_that_is_not_here_is_a_note(here: Path, capsys: Capture) -> None:
    put(here / "d/fc.Boxfile", "base: builtin:busybox\nbackend: firecracker\n")
    for words in (["d"], ["d/fc.Boxfile"]):
        assert app.main(["validate", *words]) == 0
        said = capsys.readouterr()
        assert said.out == "d/fc.Boxfile: good\n"
        assert said.err.startswith("d/fc.Boxfile:2:10: note: backend: this version of box")
        checked = validated(capsys, *words)["d/fc.Boxfile"]
        assert (checked["notes"][0]["path"], checked["problems"]) == ("backend", [])


def test_a_folder_without_any_says_so(here: Path, capsys: Capture) -> None:
    (here / "d").mkdir()
    assert app.main(["validate", "d"]) == 0
    assert capsys.readouterr() == ("", "d:1:1: note: there is no Boxfile in this folder\n")
    assert messages(validated(capsys, "d")["d"], "notes")


def test_a_folder_that_is_gone_or_unreadable_is_an_error_others_are_still_checked(
    here: Path, capsys: Capture
) -> None:
    put(here / "web.Boxfile")
    files = validated(capsys, "nowhere/", "web.Boxfile", "", "web.Boxfile/x", "nowhere/Boxfile")
    assert [path for path, each in files.items() if each["valid"]] == ["web.Boxfile"]
    assert "No such file" in messages(files["nowhere"])
    assert "Not a directory" in messages(files["web.Boxfile/x"])


@pytest.mark.root
def test_what_may_not_be_read_is_an_error(here: Path, capsys: Capture) -> None:
    closed = put(here / "d/closed.Boxfile")
    closed.chmod(0)
    put(here / "d/web.Boxfile")
    put(here / "shut/web.Boxfile")
    for path in here, *here.parents[:-2]:
        path.chmod(0o755)
    (here / "shut").chmod(0)
    os.seteuid(65534)
    try:
        files = validated(capsys, "d", "shut")
    finally:
        os.seteuid(0)
    assert "Permission denied" in messages(files["d/closed.Boxfile"])
    assert files["d/web.Boxfile"]["valid"]
    assert "Permission denied" in messages(files["shut"])


def test_a_file_written_this_moment_is_waited_for(here: Path, capsys: Capture) -> None:
    put(here / "d/web.Boxfile", BAD)
    validated(capsys, "d")
    put(here / "d/web.Boxfile")
    assert validated(capsys, "d")["d/web.Boxfile"]["valid"]


def test_more_problems_than_are_shown_are_not_kept_secret(here: Path, capsys: Capture) -> None:
    many = "".join(f"field{number}: 1\n" for number in range(80))
    put(here / "web.Boxfile", GOOD + many)
    assert app.main(["validate", "web.Boxfile"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 51
    assert "more" in lines[-1]


@pytest.mark.parametrize(
    ("text", "status", "line"),
    [
        (GOOD, 0, ""),
        (BAD, 1, "<stdin>:3:1: cpu: is not a field; did you mean cpus?"),
        ("", 1, "<stdin>:1:1: is empty"),
        ("#" * (256 * 1024 + 1), 1, "<stdin>:1:1: is larger than 256 KiB"),
        ("base: builtin:busybox\nbackend: krun\n", 0, "<stdin>:2:10: note: backend: "),
    ],
)
def test_stdin(here: Path, text: str, status: int, line: str) -> None:
    done = box("validate", "-", cwd=here, stdin=text.encode())
    assert done.returncode == status
    assert done.stderr.startswith(line)
    assert done.stdout == ("<stdin>: good\n" if status == 0 else "")


def test_it_touches_nothing(here: Path) -> None:
    put(here / "web.Boxfile")
    assert box("validate", "web.Boxfile", cwd=here).returncode == 0
    assert [path.name for path in here.iterdir()] == ["web.Boxfile"]


def test_bytes_that_are_no_text_reach_no_terminal(here: Path) -> None:
    name = b"\xff\x1b[31m.Boxfile"
    Path(os.fsdecode(bytes(here) + b"/" + name)).write_text(BAD)
    for output in ("text", "json"):
        done = box(b"validate", name, b"-o", output.encode(), cwd=here)
        assert done.returncode == 1
        assert "\x1b" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_an_endless_device_is_not_read(here: Path, capsys: Capture) -> None:
    assert "is a device" in messages(validated(capsys, "/dev/zero")["/dev/zero"])


def test_without_a_path_it_tells_how() -> None:
    with pytest.raises(BoxError, match="Missing parameter"):
        app.main(["validate"])


def test_a_path_that_cannot_be_looked_at_hides_no_other(here: Path, capsys: Capture) -> None:
    put(here / "bad.Boxfile", BAD)
    assert app.main(["validate", "a" * 300, "bad.Boxfile"]) == 1
    said = capsys.readouterr().err
    assert "aaa:1:1: cannot be read: File name too long" in said
    assert "bad.Boxfile:4:10:" in said


def test_mounts_are_judged_on_this_host(here: Path, capsys: Capture) -> None:
    text = "base: alpine\nbackend: krun\nmounts:\n  - {host: /proc, guest: /a}\n"
    put(here / "web.Boxfile", text)
    assert app.main(["validate", "web.Boxfile"]) == 1
    assert "web.Boxfile:4:12: mounts[0].host: is the kernel's files" in capsys.readouterr().err
    done = box("validate", "-", cwd=here, stdin=text.encode())
    assert done.returncode == 1
    assert ":4:12: mounts[0].host: is the kernel's files" in done.stderr
