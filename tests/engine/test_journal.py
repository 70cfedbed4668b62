from __future__ import annotations

import hashlib
import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.engine import chain_end, journal
from reconciler.engine.chain_check import Verified
from reconciler.engine.chain_end import End
from reconciler.engine.home import sandbox_directory

REPO = Path(journal.__file__).parents[2]


def lines(home: Path) -> list[bytes]:
    return (home / "events.jsonl").read_bytes().splitlines(keepends=True)


def write(home: Path, *messages: str) -> None:
    for message in messages:
        journal.record(home, "web", "Normal", "Tested", message)


def messages(home: Path, sandbox: str | None = None) -> list[str]:
    return [event["message"] for event in journal.read_events(home, sandbox)]


def test_events_are_read_in_their_order_of_one_sandbox_or_all(home: Path) -> None:
    write(home, "a")
    journal.record(home, "db", "Warning", "Tested", "b", extra=[1])
    write(home, "c")
    assert messages(home) == ["a", "b", "c"]
    assert messages(home, "web") == ["a", "c"]
    (event,) = journal.read_events(home, "db")
    assert (event["type"], event["reason"], event["extra"]) == ("Warning", "Tested", [1])
    assert event["time"].endswith("Z")
    assert (home / "events.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_sandbox_that_has_a_directory_has_a_journal_of_its_own(home: Path) -> None:
    write(home, "before")
    path = sandbox_directory(home, "web") / "journal.jsonl"
    write(home, "after")
    assert [json.loads(line)["message"] for line in path.read_text().splitlines()] == ["after"]


@pytest.mark.slow
def test_a_sandbox_that_fails_for_ever_fills_no_disk(home: Path) -> None:
    own = sandbox_directory(home, "web")
    for _ in range(70):
        journal.record(home, "web", "Warning", "Drift", "x" * 900_000)
    assert sum(each.stat().st_size for each in home.glob("events*")) < (5 * 8 << 20) + 4096
    assert sum(each.stat().st_size for each in own.iterdir()) < (3 << 20) + 4096
    assert journal.verify(home).holds
    assert journal.verify(home).dropped > 20
    (told,) = journal.verify_journals(home).values()
    assert told.holds
    assert told.events + told.dropped == 70
    assert len(messages(home, "web")) == journal.verify(home).events


def test_what_is_said_of_a_folder_is_in_the_journal_of_no_sandbox(home: Path) -> None:
    journal.record(home, "", "Warning", "SourceMissing", "gone")
    assert messages(home, "") == ["gone"]
    assert list((home / "sandboxes").iterdir()) == []


def test_the_journal_of_each_sandbox_is_checked(home: Path) -> None:
    for name in ("db", "web"):
        sandbox_directory(home, name)
        journal.record(home, name, "Normal", "Tested", "a")
        journal.record(home, name, "Normal", "Tested", "b")
    sandbox_directory(home, "silent")
    path = home / "sandboxes" / "web" / "journal.jsonl"
    other = home / "sandboxes" / "db" / "journal.jsonl"
    assert journal.verify_journals(home) == {other: Verified(2), path: Verified(2)}
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"A"'))
    assert journal.verify_journals(home) == {other: Verified(2), path: Verified(1, broken_line=2)}
    path.unlink()
    assert journal.verify_journals(home)[path] == Verified(0, cut=True)
    assert journal.verify(home) == Verified(4)


def test_nothing_is_there_before_the_first_event(home: Path) -> None:
    assert messages(home) == []
    assert journal.broken_at(home) is None


@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_edited_line_breaks_the_chain_at_the_next(home: Path, at: int) -> None:
    write(home, "a", "b", "c", "d")
    assert journal.broken_at(home) is None
    found = lines(home)
    found[at - 1] = found[at - 1].replace(b'"Normal"', b'"Xormal"')
    (home / "events.jsonl").write_bytes(b"".join(found))
    assert journal.broken_at(home) == at + 1


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_removed_line_breaks_the_chain(home: Path, gone: int) -> None:
    write(home, "a", "b", "c", "d")
    found = lines(home)
    del found[gone]
    (home / "events.jsonl").write_bytes(b"".join(found))
    assert journal.broken_at(home) == gone + 1


@pytest.mark.parametrize("torn", [b"{", b'{"message": "half', b"\xff" * 100_000])
def test_a_torn_last_line_is_passed_over_and_cut_off(home: Path, torn: bytes) -> None:
    write(home, "a", "b")
    with (home / "events.jsonl").open("ab") as stream:
        stream.write(torn)
    assert messages(home) == ["a", "b"]
    assert journal.broken_at(home) is None
    write(home, "c")
    assert messages(home) == ["a", "b", "c"]
    assert journal.broken_at(home) is None
    assert len(lines(home)) == 3


def test_a_file_that_is_only_a_torn_line(home: Path) -> None:
    (home / "events.jsonl").write_bytes(b"x" * 200_000)
    write(home, "a")
    assert messages(home) == ["a"]
    assert journal.broken_at(home) is None


@pytest.mark.parametrize("size", [65_000, 65_536, 70_000, 131_072, 300_000])
def test_a_long_line_keeps_the_chain(home: Path, size: int) -> None:
    write(home, "a", "x" * size, "b", "y" * size, "z" * size, "c")
    assert [len(each) for each in messages(home)] == [1, size, 1, size, size, 1]
    assert journal.broken_at(home) is None


def test_the_last_line_and_the_end_are_held_too(home: Path) -> None:
    path = home / "events.jsonl"
    write(home, "a", "b", "c")
    whole, found = path.read_bytes(), lines(home)
    assert journal.verify(home).holds
    for bad, told in (
        (whole[: -len(found[2])], Verified(2, cut=True)),
        (whole[:-1], Verified(2, torn=True, cut=True)),
        (b"", Verified(0, cut=True)),
        (whole.replace(b'"c"', b'"C"'), Verified(2, broken_line=3)),
        (whole.replace(b'"c"', b'"see"'), Verified(2, broken_line=3)),
        (whole.replace(b'"c"', b'""'), Verified(3, cut=True)),
    ):
        path.write_bytes(bad)
        assert journal.verify(home) == told
        assert not told.holds
        # What is written afterwards does not hide it.
        write(home, "d", "e")
        assert not journal.verify(home).holds, bad
        path.write_bytes(whole)
        chain_end.write(path, End(len(whole), hashlib.sha256(found[2].rstrip()).hexdigest()))
    path.unlink()
    assert journal.verify(home) == Verified(0, cut=True)
    write(home, "d")
    assert journal.verify(home) == Verified(0, broken_line=1)


def test_without_its_noted_end_a_chain_does_not_hold(home: Path) -> None:
    path = home / "events.jsonl"
    write(home, "a", "b")
    for bad in (b"", b"{}", b'{"size": "x", "digest": 1}'):
        chain_end.path_of(path).write_bytes(bad)
        assert journal.verify(home) == Verified(2, cut=True)
    chain_end.path_of(path).unlink()
    assert journal.verify(home) == Verified(2, cut=True)


def test_a_writer_that_ended_before_it_noted_the_end_has_cut_nothing(home: Path) -> None:
    path = home / "events.jsonl"
    write(home, "a", "b")
    before = chain_end.read(path)
    assert before is not None
    write(home, "c", "d")
    chain_end.write(path, before)
    assert journal.verify(home) == Verified(4)
    write(home, "e")
    assert journal.verify(home) == Verified(5)


def test_a_message_cannot_forge_a_line(home: Path) -> None:
    write(home, 'a\n{"message": "forged"}\n\u2028\x1b[31m\udcff')
    assert len(lines(home)) == 1
    assert lines(home)[0].isascii()
    assert journal.broken_at(home) is None


def test_a_full_disk_leaves_what_was_there(home: Path) -> None:
    write(home, "a")
    before = (home / "events.jsonl").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write(home, "b")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (home / "events.jsonl").read_bytes() == before
    write(home, "c")
    assert messages(home) == ["a", "c"]
    assert journal.broken_at(home) is None


def test_many_writers_keep_one_chain(home: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from reconciler.engine import journal\n"
        "for n in range(20):\n"
        "    journal.record(Path(sys.argv[2]), sys.argv[3], 'Normal', 'Tested', str(n))\n"
    )
    writers = [
        subprocess.Popen([sys.executable, "-I", "-c", script, REPO, home, f"w{n}"])
        for n in range(3)
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert journal.broken_at(home) is None
    for n in range(3):
        assert messages(home, f"w{n}") == [str(each) for each in range(20)]


def test_a_writer_killed_in_the_middle_leaves_a_whole_chain(home: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from reconciler.engine import journal\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    journal.record(Path(sys.argv[2]), 'web', 'Normal', 'Tested', 'x' * 9000)\n"
    )
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-I", "-c", script, REPO, home], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        size = (home / "events.jsonl").stat().st_size if (home / "events.jsonl").exists() else 0
        while not (home / "events.jsonl").exists() or (
            (home / "events.jsonl").stat().st_size <= size
        ):
            assert writer.poll() is None
        writer.kill()
        writer.communicate(timeout=10)
    write(home, "last")
    assert journal.broken_at(home) is None
    assert messages(home)[-1] == "last"


def test_checking_tells_how_many_hold_the_first_that_does_not_and_a_torn_end(home: Path) -> None:
    assert journal.verify(home) == Verified(0)
    write(home, "a", "b", "c")
    assert journal.verify(home) == Verified(3)
    path = home / "events.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b"{")
    assert journal.verify(home) == Verified(3, torn=True)
    path.write_bytes(whole.replace(b'"b"', b'"B"'))
    assert journal.verify(home) == Verified(2, broken_line=3)
    path.write_bytes(b"no event\n" + whole)
    assert journal.verify(home) == Verified(0, broken_line=1)
