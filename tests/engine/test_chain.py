"""A chain is bounded: what was dropped by box is told from what somebody took away."""

from __future__ import annotations

import contextlib
import errno
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.engine import chain, chain_end, chain_files
from reconciler.engine.chain import Limits
from reconciler.engine.chain_check import Verified, verify
from reconciler.engine.chain_end import End
from reconciler.engine.chain_reader import Reader

REPO = Path(chain.__file__).parents[2]
# Three lines of a short message to a file.
SMALL = Limits(file_bytes=400, older=2)


Writers = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def write(path: Path, *numbers: int, limits: Limits = SMALL) -> None:
    for n in numbers:
        chain.append(path, {"time": f"t{n:03}", "message": n}, limits)


def read(path: Path) -> list[int]:
    with Reader(path) as reader:
        return [event["message"] for event in reader.new()]


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.glob("events.*") if each.suffix == ".jsonl")


def older(path: Path, number: int) -> Path:
    return chain_files.older_path(path, number)


def test_a_full_file_becomes_an_older_one_and_the_chain_goes_on(path: Path) -> None:
    write(path, *range(7))
    assert names(path) == ["events.1.jsonl", "events.2.jsonl", "events.jsonl"]
    assert read(path) == list(range(7))
    assert verify(path) == Verified(7)
    for each in path.parent.glob("events*.jsonl"):
        assert each.stat().st_size <= SMALL.file_bytes
        assert each.stat().st_mode & 0o777 == 0o600


def test_however_much_is_written_so_many_files_stay_and_box_says_what_it_dropped(
    path: Path,
) -> None:
    for n in range(100):
        write(path, n)
        found = read(path)
        assert found == list(range(found[0], n + 1))
        assert sum(each.stat().st_size for each in path.parent.glob("events*")) < 4 * 400 + 500
        assert len(names(path)) <= 3
        told = verify(path)
        assert told.holds
        assert (told.dropped, told.events) == (found[0], len(found))
        assert told.since == (f"t{found[0]:03}" if found[0] else None)
    assert told.dropped > 80


@pytest.mark.parametrize("number", [30, 31, 32])
def test_an_edit_in_any_older_file_is_found(path: Path, number: int) -> None:
    write(path, *range(100))
    numbers = chain_files.older_numbers(path)
    file = older(path, numbers[number % 2])
    whole = file.read_bytes()
    at = number % 3
    lines = whole.splitlines(keepends=True)
    lines[at] = lines[at].replace(b'"time": "t', b'"time": "T')
    file.write_bytes(b"".join(lines))
    told = verify(path)
    last_line_of_file = at == len(lines) - 1
    broken_in = numbers[number % 2] + 1 if last_line_of_file else numbers[number % 2]
    assert not told.holds
    assert told.older == (broken_in if broken_in in numbers else None)
    assert told.broken_line == (1 if last_line_of_file else at + 2)
    # What is written afterwards does not hide it, as long as the file is kept.
    write(path, 100, 101)
    assert not verify(path).holds


def remove_line(path: Path) -> None:
    file = older(path, chain_files.older_numbers(path)[1])
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))


def tear_line(path: Path) -> None:
    file = older(path, chain_files.older_numbers(path)[1])
    file.write_bytes(file.read_bytes()[:-5])


def remove_oldest(path: Path) -> None:
    older(path, chain_files.older_numbers(path)[0]).unlink()


def remove_newest_older(path: Path) -> None:
    older(path, chain_files.older_numbers(path)[-1]).unlink()


def remove_all_older(path: Path) -> None:
    for number in chain_files.older_numbers(path):
        older(path, number).unlink()


def remove_current(path: Path) -> None:
    path.unlink()


def remove_all(path: Path) -> None:
    remove_all_older(path)
    remove_current(path)


def swap_older(path: Path) -> None:
    one, two = (older(path, number) for number in chain_files.older_numbers(path))
    text = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(text)


def forget_end(path: Path) -> None:
    chain_end.path_of(path).unlink()


@pytest.mark.parametrize(
    "tamper",
    [
        remove_line,
        tear_line,
        remove_oldest,
        remove_newest_older,
        remove_all_older,
        remove_current,
        remove_all,
        swap_older,
        forget_end,
    ],
)
@pytest.mark.parametrize("count", [9, 100])
def test_what_somebody_takes_away_is_not_taken_for_dropped(
    path: Path, tamper: Callable[[Path], None], count: int
) -> None:
    write(path, *range(count))
    assert verify(path).holds
    tamper(path)
    assert not verify(path).holds


@pytest.mark.parametrize(
    "tamper", [remove_line, remove_oldest, remove_newest_older, remove_all, remove_current]
)
def test_what_is_written_afterwards_does_not_hide_it(
    path: Path, tamper: Callable[[Path], None]
) -> None:
    write(path, *range(100))
    tamper(path)
    write(path, 100)
    assert not verify(path).holds
    assert read(path)[-1] == 100


def test_a_missing_file_is_named(path: Path) -> None:
    write(path, *range(100))
    first, second = chain_files.older_numbers(path)
    older(path, first).unlink()
    told = verify(path)
    assert (told.gone, told.events, told.broken_line) == (first, 0, None)
    assert second == first + 1


STEPS = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from reconciler.engine import chain
from reconciler.engine.chain import Limits
left = int(sys.argv[3])
def step(event, args):
    global left
    if event in {"open", "os.rename", "os.remove", "os.truncate", "fcntl.flock", "os.listdir"}:
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
sys.addaudithook(step)
chain.append(Path(sys.argv[2]), {"time": "t", "message": -1}, Limits(400, 2))
"""


def step(path: Path, at: int) -> int:
    command = [sys.executable, "-I", "-c", STEPS, str(REPO), str(path), str(at)]
    return subprocess.run(command, check=False, timeout=60).returncode


@pytest.mark.slow
def test_killed_at_any_step_of_making_room_the_chain_holds_and_goes_on(path: Path) -> None:
    write(path, *range(99))
    while path.stat().st_size + 100 < SMALL.file_bytes:
        write(path, 99)
    kept = path.parent.with_name("kept")
    shutil.copytree(path.parent, kept)
    before = read(path)
    ends, shapes = set(), set()
    for at in range(100):
        shutil.rmtree(path.parent)
        shutil.copytree(kept, path.parent)
        ended = step(path, at)
        ends.add(ended)
        told = verify(path)
        assert told.holds, at
        shapes.add(tuple(names(path)))
        found = [each for each in read(path) if each != -1]
        assert found in (before, before[told.dropped - before[0] :]), at
        # Twice: what was begun is done, and nothing is lost that had not been dropped.
        write(path, 1000, 1001)
        assert verify(path).holds, at
        assert read(path)[-2:] == [1000, 1001]
        assert len(names(path)) <= 3
        if ended == 0:
            break
    assert ends == {0, -signal.SIGKILL}
    # It was killed before, between and behind all that it renames and removes.
    assert len(shapes) >= 4


WRITER = """
import sys; sys.path.insert(0, sys.argv[1])
from itertools import count
from pathlib import Path
from reconciler.engine import chain
from reconciler.engine.chain import Limits
print("ready", flush=True)
for n in count() if sys.argv[4] == "0" else range(int(sys.argv[4])):
    event = {"time": "t", "who": sys.argv[3], "n": n, "message": 0}
    chain.append(Path(sys.argv[2]), event, Limits(1000, int(sys.argv[5])))
"""


@pytest.fixture
def writers() -> Iterator[Writers]:
    """Starts processes that write, and ends those that a failed test has left."""
    started: list[subprocess.Popen[bytes]] = []

    def start(path: Path, who: str, count: int, older: int = 50) -> subprocess.Popen[bytes]:
        started.append(writer(path, who, count, older))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate(timeout=10)


def writer(path: Path, who: str, count: int, older: int) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-I",
        "-c",
        WRITER,
        str(REPO),
        str(path),
        who,
        str(count),
        str(older),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_many_writers_that_make_room_keep_one_chain_and_a_reader_loses_nothing(
    path: Path, writers: Writers
) -> None:
    started = [writers(path, who, 40) for who in ("a", "b", "c")]
    seen: list[tuple[str, int]] = []
    with Reader(path) as reader:
        running = True
        while running:
            running = any(each.poll() is None for each in started)
            seen += [(event["who"], event["n"]) for event in reader.new()]
            assert verify(path).holds
    for each in started:
        assert each.wait(60) == 0
    assert verify(path) == Verified(120)
    assert len(names(path)) > 10
    for who in ("a", "b", "c"):
        assert [n for name, n in seen if name == who] == list(range(40))


FIRST_LINES = """
import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from reconciler.engine import chain
from reconciler.engine.chain import Limits
for number in range(100):
    print(number, flush=True)
    for n in range(3):
        path = Path(sys.argv[2], f"{number}.jsonl")
        chain.append(path, {"time": "t", "message": n}, Limits(1000, 50))
"""


def test_who_checks_while_the_first_lines_are_written_finds_nothing_missing(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-I", "-c", FIRST_LINES, str(REPO), str(tmp_path)]
    checks = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writing:
        assert writing.stdout is not None
        for number in writing.stdout:
            path = tmp_path / f"{number.strip()}.jsonl"
            while (found := verify(path)).events != 3 and writing.poll() is None:
                assert found.holds
                checks += 1
    assert writing.returncode == 0
    assert checks > 100


def test_who_checks_or_reads_while_the_oldest_are_dropped_sees_a_whole_chain(
    path: Path, writers: Writers
) -> None:
    write(path, 0)
    started = [writers(path, who, 60, older=1) for who in ("a", "b")]
    while any(each.poll() is None for each in started):
        assert verify(path).holds
        with Reader(path) as reader:
            found = [(event.get("who"), event.get("n")) for event in reader.new()]
        assert len(set(found)) == len(found) > 0
        for who in ("a", "b"):
            own = [n for name, n in found if name == who and n is not None]
            assert own == list(range(own[0], own[-1] + 1)) if own else True
    for each in started:
        assert each.wait(60) == 0
    told = verify(path)
    assert told.holds
    assert told.events + told.dropped == 121


def test_writers_that_are_killed_at_any_time_leave_a_chain_that_holds(
    path: Path, writers: Writers
) -> None:
    for attempt in range(6):
        child = writers(path, str(attempt), 0)
        assert child.stdout is not None
        child.stdout.readline()
        count = len(names(path))
        while len(names(path)) < count + 1:
            assert child.poll() is None
        child.kill()
        child.wait(10)
        assert verify(path).holds
    write(path, 1)
    assert verify(path).holds


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A place with 64 KiB of room."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "box-test", folder], check=True)
    yield folder / "events.jsonl"
    subprocess.run(["umount", folder], check=True)


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
        while stream.write(b"x" * 4096):
            pass


def error_of_writing(path: Path, number: int, limits: Limits) -> int:
    """The errno that it ends with, 0 for none."""
    try:
        write(path, number, limits=limits)
    except OSError as error:
        return error.errno or -1
    return 0


@pytest.mark.root
def test_a_full_disk_at_any_line_costs_that_line_alone(small: Path) -> None:
    limits = Limits(file_bytes=4096, older=3)
    write(small, *range(30), limits=limits)
    filler = small.parent / "filler"
    ends = []
    for n in range(30, 400):
        if n % 40 == 0:
            fill(filler)
        ends.append(error_of_writing(small, n, limits))
        assert verify(small).holds
        if ends[-1] and len(ends) % 5 == 0:
            filler.unlink()
            filler.touch()
    filler.unlink()
    write(small, 400, limits=limits)
    found = verify(small)
    assert found.holds
    assert found.events + found.dropped == 30 + ends.count(0) + 1
    assert set(ends) == {0, errno.ENOSPC}
    assert found.dropped > 0
    assert len(names(small)) == 4


def test_following_goes_on_over_all_files_and_tells_each_event_once(path: Path) -> None:
    with Reader(path) as reader:
        assert list(reader.new()) == []
        seen: list[int] = []
        for n in range(40):
            write(path, n)
            if n % 5 == 4:
                # Sometimes its file is the one that is written to, sometimes it is older by now.
                seen += [event["message"] for event in reader.new()]
        assert seen == list(range(40))


def test_who_followed_too_slowly_goes_on_with_what_is_kept(path: Path) -> None:
    write(path, 0)
    with Reader(path) as reader:
        assert [event["message"] for event in reader.new()] == [0]
        write(path, *range(1, 50))
        kept = read(path)
        # Its own file is open still, and read to its end before that.
        rest = [event["message"] for event in reader.new()]
        assert rest[-len(kept) :] == kept
        assert len(rest) == len(set(rest))


def test_half_a_line_is_read_when_it_is_whole(path: Path) -> None:
    write(path, 0)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"message": ')
    with Reader(path) as reader:
        assert [event["message"] for event in reader.new()] == [0]
        with path.open("ab") as stream:
            stream.write(b"1}\n")
        assert [event["message"] for event in reader.new()] == [1]
        path.write_bytes(whole)
        assert list(reader.new()) == []
        write(path, 2)
        assert [event["message"] for event in reader.new()] == [2]


def test_a_line_that_would_be_too_long_is_cut_and_keeps_the_chain(path: Path) -> None:
    message = "\N{GRINNING FACE}" * 400_000
    event = {"time": "t", "message": message, "promise": "p", "have": "x" * 100_000}
    chain.append(path, event, SMALL)
    write(path, 1)
    assert verify(path) == Verified(2)
    with Reader(path) as reader:
        first = next(reader.new())
    assert (first["cut"], first["promise"], "have" in first) == (True, "p", False)
    assert message.startswith(first["message"])
    assert len(first["message"]) > 1000


def test_a_note_without_a_beginning_is_of_a_chain_that_dropped_nothing(path: Path) -> None:
    write(path, 0, 1)
    note = chain_end.path_of(path)
    value = json.loads(note.read_text())
    del value["start"]
    note.write_text(json.dumps(value))
    assert verify(path) == Verified(2)


@pytest.mark.parametrize("bad", [None, 1, [], {"file": "x"}, {"other": 1}, {"digest": 7}])
def test_a_note_that_is_none_is_no_beginning(path: Path, bad: object) -> None:
    write(path, *range(100))
    note = chain_end.path_of(path)
    note.write_text(json.dumps({**json.loads(note.read_text()), "start": bad}))
    assert verify(path).cut
    first = read(path)[0]
    write(path, 100)
    assert read(path) == list(range(first, 101))


def test_what_was_dropped_and_left_by_a_kill_is_not_read_and_goes_later(path: Path) -> None:
    write(path, *range(100))
    first = chain_files.older_numbers(path)[0]
    kept = read(path)
    # As it is after the note, before the removal.
    older(path, first - 1).write_bytes(older(path, first).read_bytes())
    assert read(path) == kept
    assert verify(path).holds
    write(path, *range(100, 104))
    assert not older(path, first - 1).exists()
    assert isinstance(chain_end.read(path), End)
