"""Listing processes: the agent's program, and reading what a hostile guest may say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.guest.channel import Session
from reconciler.guest.processes import Process, parse
from reconciler.guest.protocol import ProtocolError
from tests.guest.test_own_programs import own

# As /proc/PID/stat has it: flags 0, 5000 ticks after boot, 3 pages.
STAT = "{pid} ({name}) S 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 5000 4096 3 18446744073"


def fake(
    proc: Path, pid: int, name: bytes, command: bytes, group: str = "/", flags: int = 0
) -> None:
    (proc / str(pid)).mkdir()
    stat = STAT.format(pid=pid, name="@", flags=flags).encode().replace(b"@", name)
    (proc / str(pid) / "stat").write_bytes(stat)
    (proc / str(pid) / "status").write_text("Name:\tx\nUid:\t7\t1000\t7\t7\n")
    (proc / str(pid) / "cmdline").write_bytes(command)
    (proc / str(pid) / "cgroup").write_text(f"0::/{group}\n")


def test_every_field_is_told_and_kernel_threads_are_not(session: Session, tmp_path: Path) -> None:
    (tmp_path / "uptime").write_text("70.55 100.00\n")
    hostile = b") R 9\n\t\\x41"
    fake(tmp_path, 10, hostile, b"a b\0\0\x1b[2J\xff\\\0", "box.11/sub")
    fake(tmp_path, 11, b"zombie", b"", "box.16")
    fake(tmp_path, 12, b"kthreadd", b"", flags=0x00200000)
    (tmp_path / "13").mkdir()
    (tmp_path / "self").mkdir()
    code, out, said = own(session, "ps", str(tmp_path))
    assert (code, said) == (0, "")
    assert out.isascii()
    kib = 3 * os.sysconf("SC_PAGE_SIZE") // 1024
    argv = ("a b", "", "\x1b[2J\\xff\\")
    assert sorted(parse(out)) == [
        Process(10, 1, 1000, "S", kib, 20, 11, hostile.decode(), argv),
        Process(11, 1, 1000, "S", kib, 20, None, "zombie", ()),
    ]


def test_it_sees_this_machine_as_it_is_but_not_itself(session: Session) -> None:
    words = [sys.executable, "-c", "input()", "é", ""]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as child:
        # Until it has executed the program, its command line is another one's.
        while Path(f"/proc/{child.pid}/cmdline").read_bytes().count(b"\0") != len(words):
            pass
        code, out, _ = own(session, "ps", "/proc")
        [mine] = [each for each in parse(out) if each.pid == child.pid]
        child.communicate(b"\n")
    assert code == 0
    assert (mine.ppid, mine.uid, mine.argv) == (os.getpid(), os.geteuid(), tuple(words))
    assert 0 < mine.rss_kib < 1_000_000
    assert mine.elapsed_seconds < 60
    names = {each.name for each in parse(out)}
    assert not names & {"ps", "kthreadd"}


def test_a_long_command_line_is_cut(session: Session, tmp_path: Path) -> None:
    fake(tmp_path, 10, b"n" * 15, b"\xff" * 100_000)
    _, out, _ = own(session, "ps", str(tmp_path))
    [only] = parse(out)
    assert only.argv == ("\\xff" * 1024,)


def test_what_is_no_directory_is_told(session: Session) -> None:
    assert own(session, "ps", "/no/such") == (1, b"", "box: /no/such: No such file or directory\n")
    assert own(session, "ps")[0] == 127


GOOD = b"1\t0\t0\tS\t4\t5\t-\tinit\t/init\n"


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"1\n",
        GOOD.replace(b"init\t", b"in\x1bit\t"),
        GOOD.replace(b"1", b"-1"),
        GOOD.replace(b"4", b"9" * 5000),
        GOOD.replace(b"-", b"100"),
        GOOD.replace(b"S", b"SS"),
        GOOD.replace(b"/init", b"\xff"),
        GOOD.replace(b"\n", b"\t\n"),
    ],
)
def test_a_line_that_is_no_process_is_refused(line: bytes) -> None:
    assert parse(GOOD)
    with pytest.raises(ProtocolError):
        parse(GOOD + line)


def test_a_line_that_is_cut_short_is_left_out() -> None:
    assert parse(GOOD + GOOD[:5]) == parse(GOOD)
    assert parse(b"") == []


@given(st.binary())
def test_whatever_comes_is_processes_or_refused(data: bytes) -> None:
    try:
        parse(data)
    except ProtocolError:
        return
