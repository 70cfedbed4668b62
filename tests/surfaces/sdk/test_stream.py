"""Output as it comes: in order, held back by its reader, and ended with it."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from pathlib import Path

import pytest

from reconciler.errors import GuestFailed, Refused
from reconciler.sdk import Sandbox
from tests.surfaces.sdk.ending import until_gone

MIB = 1 << 20


def test_pieces_come_as_they_are_written(box: Sandbox) -> None:
    """The command goes on only when its first word was read."""
    with box.stream(["sh", "-c", "echo one; read x; echo $x >&2; exit 5"], stdin=b"two\n") as it:
        found = list(it)
        assert found == [("stdout", b"one\n"), ("stderr", b"two\n")]
        assert it.result.exit_code == 5
    assert (it.result.stdout_bytes, it.result.stderr_bytes, it.result.truncated) == (4, 4, False)
    assert it.result.stdout == b""


def test_every_byte_comes(box: Sandbox) -> None:
    with box.stream(["head", "-c", str(9 * MIB), "/dev/zero"]) as it:
        assert sum(len(data) for _, data in it) == 9 * MIB
    assert it.result.stdout_bytes == 9 * MIB


def test_a_reader_that_waits_holds_the_command_back(box: Sandbox, tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = f"n=0; while :; do n=$((n+1)); echo $n >{count}; head -c 65536 /dev/zero; done"
    with box.stream(["sh", "-c", script]) as it:
        next(iter(it))
        before = -1
        while (now := int(count.read_text() or 0)) != before:
            before = now
            time.sleep(0.3)
    # The pipes, the agent's buffers and ours: far below what it could write meanwhile.
    assert before < 40


def test_leaving_early_ends_the_command(box: Sandbox, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with box.stream(["sh", "-c", f"echo $$ >{pid}; yes & yes >&2"]) as it:
        next(iter(it))
    until_gone(int(pid.read_text()))
    with pytest.raises(Refused, match="has not ended"):
        _ = it.result


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_exception_in_the_body_ends_the_command(
    box: Sandbox, tmp_path: Path, kind: type[BaseException]
) -> None:
    pid = tmp_path / "pid"
    with (  # noqa: PT012 - the exception is raised in the loop, as a caller's would be
        pytest.raises(kind),
        box.stream(["sh", "-c", f"echo $$ >{pid}; echo x; sleep 60"]) as it,
    ):
        for _ in it:
            raise kind
    until_gone(int(pid.read_text()))


@pytest.mark.parametrize("signo", ["TERM", "sigterm", signal.SIGTERM, 15])
def test_a_signal_reaches_the_command(box: Sandbox, signo: str | int) -> None:
    with box.stream(["sh", "-c", "echo x; exec sleep 60"]) as it:
        next(iter(it))
        it.send_signal(signo)
        assert it.wait().signal == "SIGTERM"
    it.send_signal(signo)  # it has ended: nothing happens


@pytest.mark.parametrize("signo", ["NONE", 0, 65, -9])
def test_what_is_no_signal_is_refused(box: Sandbox, signo: str | int) -> None:
    with box.stream(["true"]) as it, pytest.raises(Refused, match="no signal"):
        it.send_signal(signo)


def test_a_signal_from_another_thread_wakes_the_reader(box: Sandbox) -> None:
    with box.stream(["sh", "-c", "trap 'echo got' USR1; echo x; while :; do sleep 1; done"]) as it:
        pieces = iter(it)
        next(pieces)
        thread = threading.Thread(target=it.send_signal, args=("USR1",))
        thread.start()
        # The shell may also say on stderr that the signal ended its `sleep`.
        assert ("stdout", b"got\n") in pieces
        thread.join()


def test_a_guest_that_goes_away_is_told_behind_its_last_words(box: Sandbox) -> None:
    with box.stream(["sh", "-c", "echo last; sleep 0.2; kill -KILL $PPID"]) as it:
        pieces = iter(it)
        assert next(pieces) == ("stdout", b"last\n")
        with pytest.raises(GuestFailed):
            list(itertools.islice(pieces, 5))


def test_it_is_started_by_the_block_and_once(box: Sandbox) -> None:
    process = box.stream(["true"])
    with pytest.raises(Refused, match="not started"):
        process.wait()
    with process:
        assert process.wait().ok
    with pytest.raises(Refused, match="once"):
        process.__enter__()


def test_a_slow_reader_loses_nothing_to_the_time_limit(box: Sandbox) -> None:
    with box.stream(["head", "-c", str(2 * MIB), "/dev/zero"], timeout=0.5) as it:
        pieces = iter(it)
        size = len(next(pieces)[1])
        time.sleep(1)
        size += sum(len(data) for _, data in pieces)
        assert size <= 2 * MIB
        # What it could not write in time is the guest's to decide; what it said is not lost.
        assert it.result.timed_out or size == 2 * MIB
