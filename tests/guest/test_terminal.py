"""Commands with a terminal, and with limits, through the real agent."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable

import pytest

from reconciler.errors import BoxError
from reconciler.guest import protocol
from reconciler.guest.channel import Session
from reconciler.guest.protocol import UNCLAIMED_TOKEN, UNLIMITED, Claim, Exec, Exit, Limit, Size
from tests.guest.test_agent import AgentStarter, echo_works, is_alive, next_frame, start_raw

SIZE = Size(40, 132)
NOFILE = 7  # of asm-generic/resource.h
CORE = 4


class Screen:
    """What came from the terminal; types answers to what it shows."""

    def __init__(self, *dialogue: tuple[bytes, Callable[[], object]]) -> None:
        self.shown = b""
        self._dialogue = list(dialogue)

    def take(self, data: bytes) -> None:
        self.shown += data
        while self._dialogue and self._dialogue[0][0] in self.shown:
            self._dialogue.pop(0)[1]()


def run(
    session: Session,
    script: str,
    *dialogue: tuple[bytes, Callable[[], object]],
    stdin: int | None = None,
    timeout_ms: int = 20_000,
    rlimits: list[Limit] | None = None,
) -> tuple[Exit, str]:
    screen = Screen(*dialogue)
    end = session.exec(
        ["sh", "-c", script],
        {},
        stdin=stdin,
        stdout=screen.take,
        stderr=screen.take,
        timeout_ms=timeout_ms,
        tty=SIZE,
        rlimits=rlimits or [],
    )
    return end, screen.shown.decode().replace("\r\n", "\n")


def ended(code: int) -> Exit:
    return Exit(code, 0, timed_out=False)


def test_it_is_the_controlling_terminal_of_that_size(session: Session) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && stty size && echo to >/dev/tty && echo e >&2"
    assert run(session, script) == (ended(0), "40 132\nto\ne\n")


def test_no_other_file_is_open(session: Session) -> None:
    script = "n=0; while [ $n -lt 64 ]; do [ -e /proc/$$/fd/$n ] && echo $n; n=$((n + 1)); done"
    assert run(session, script)[1].split() == ["0", "1", "2"]


def test_a_new_size_arrives_with_its_signal(session: Session) -> None:
    script = "trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.05; done"
    dialogue = (b"ready", lambda: session.resize(Size(10, 20)))
    assert run(session, script, dialogue) == (ended(3), "ready\n10 20\n")


def test_a_size_may_be_told_from_a_handler_before_the_command_runs(session: Session) -> None:
    session.resize(Size(11, 22))
    script = "n=0; while [ $n -lt 100 ] && [ \"$(stty size)\" != '11 22' ]; do sleep 0.02; done"
    assert run(session, script, timeout_ms=5000)[0] == ended(0)


def test_a_size_without_a_terminal_is_ignored(session: Session) -> None:
    session.resize(Size(1, 1))
    output = bytearray()
    end = session.exec(["echo", "hi"], {}, stdin=None, stdout=output.extend, stderr=2)
    assert (end, bytes(output)) == (ended(0), b"hi\n")
    session.resize(Size(1, 1))
    session.ping()


def test_typing_is_echoed_and_a_control_character_is_a_signal(session: Session) -> None:
    reading, writing = os.pipe()
    try:
        typing = [
            (b"ready", lambda: os.write(writing, b"word\n")),
            (b"got word", lambda: os.write(writing, b"\x03")),
        ]
        script = "trap 'echo stopped; exit 9' INT; echo ready; read a; echo got $a; "
        script += "while :; do sleep 0.1; done"
        end, shown = run(session, script, *typing, stdin=reading)
    finally:
        os.close(reading)
        os.close(writing)
    assert (end, shown) == (ended(9), "ready\nword\ngot word\n^Cstopped\n")


def test_the_end_of_the_input_is_typed(session: Session) -> None:
    assert run(session, "cat; echo done") == (ended(0), "done\n")


def test_a_terminal_in_raw_mode_gets_no_end(session: Session) -> None:
    script = "stty raw -echo; timeout 0.5 cat | od -An -tx1; stty sane; echo done"
    assert run(session, script)[1].split() == ["done"]


def test_a_flood_is_whole_and_the_end_of_it_too(session: Session) -> None:
    _, shown = run(session, "seq 1 100000")
    assert shown.split() == [str(number) for number in range(1, 100_001)]


def test_what_a_leader_left_on_the_terminal_is_not_lost(session: Session) -> None:
    for _ in range(20):
        assert run(session, "sleep 300 & seq 1 800; exit 4") == (
            ended(4),
            "".join(f"{number}\n" for number in range(1, 801)),
        )


def test_what_the_terminal_holds_at_the_end_is_never_cut(
    start_agent: AgentStarter, claim: Claim
) -> None:
    """A slow reader: the leader is gone, and its terminal still full."""
    with start_agent(send_buffer=4096) as sock:
        with Session(sock, UNCLAIMED_TOKEN) as session:
            session.claim(claim)
        decoder = start_raw(sock, claim.token)
        script = "head -c 18000 /dev/zero; sleep 300 &"
        sock.sendall(protocol.encode_exec(Exec(["sh", "-c", script], {}, tty=SIZE)))
        pid = protocol.decode_number(next_frame(sock, decoder).payload)
        deadline = time.monotonic() + 20
        while is_alive(pid):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        received = 0
        while (frame := next_frame(sock, decoder)).type == protocol.STDOUT:
            received += len(frame.payload)
        assert (received, frame.type) == (18_000, protocol.EXIT)


def test_input_that_nobody_reads_delays_nothing(session: Session) -> None:
    with open("/dev/zero", "rb") as zeros:  # noqa: PTH123 - an endless file
        end, _ = run(session, "stty raw -echo; sleep 0.3; exit 5", stdin=zeros.fileno())
    assert end == ended(5)


def test_a_command_that_leaves_its_terminal_is_not_hung_up_on(session: Session) -> None:
    script = "exec </dev/null >/dev/null 2>&1; sleep 0.6; exit 6"
    with open("/dev/zero", "rb") as zeros:  # noqa: PTH123
        assert run(session, script, stdin=zeros.fileno())[0] == ended(6)


def test_the_time_limit_holds(session: Session) -> None:
    end, _ = run(session, "trap '' HUP INT; setsid sleep 300 & sleep 300", timeout_ms=300)
    assert end == Exit(-1, signal.SIGKILL, timed_out=True)


def test_a_client_that_goes_hangs_up(claimed: socket.socket, token: bytes) -> None:
    decoder = start_raw(claimed, token)
    request = Exec(["sh", "-c", "echo up; sleep 300"], {}, tty=SIZE)
    claimed.sendall(protocol.encode_exec(request))
    assert next_frame(claimed, decoder).type == protocol.STARTED
    assert next_frame(claimed, decoder).payload == b"up\r\n"
    assert echo_works(claimed, token)
    with Session(claimed, token) as session:
        output = bytearray()
        session.exec(["sh", "-c", "ps -o args= --ppid $PPID"], {}, stdin=None,
                     stdout=output.extend, stderr=2)  # fmt: skip
    assert b"sleep 300" not in output


def test_many_terminals_follow_each_other(session: Session) -> None:
    before = len(os.listdir("/dev/pts"))  # noqa: PTH208
    for number in range(50):
        assert run(session, f"echo {number}")[1] == f"{number}\n"
    assert len(os.listdir("/dev/pts")) <= before + 1  # noqa: PTH208


def test_signals_reach_the_leader_s_group(session: Session) -> None:
    threading.Timer(0.3, session.signal, [signal.SIGHUP]).start()
    start = time.monotonic()
    assert run(session, "sleep 300")[0] == Exit(-1, signal.SIGHUP, timed_out=False)
    assert time.monotonic() - start < 60


def test_limits_are_in_force(session: Session) -> None:
    limits = [Limit(NOFILE, 33, 44), Limit(CORE, 0, UNLIMITED)]
    end, shown = run(session, "ulimit -Sn; ulimit -Hn; ulimit -Sc", rlimits=limits)
    assert (end, shown) == (ended(0), "33\n44\n0\n")


@pytest.mark.root
def test_limits_beyond_what_the_kernel_gives_are_told(session: Session) -> None:
    limits = [Limit(NOFILE, 1 << 40, 1 << 40)]
    end, shown = run(session, "true", rlimits=limits)
    assert (end, shown) == (ended(126), "box: cannot set its limits: Operation not permitted\n")


def test_a_limit_that_does_not_exist_is_an_error(claimed: socket.socket, token: bytes) -> None:
    frame = bytearray(protocol.encode_exec(Exec(["true"], {}, rlimits=[Limit(7, 1, 1)])))
    frame[28] = 99
    decoder = start_raw(claimed, token)
    claimed.sendall(frame)
    kind, payload = next_frame(claimed, decoder)
    assert kind == protocol.ERROR
    with pytest.raises(BoxError) as caught:
        raise BoxError(protocol.decode_error(payload))
    assert "EXEC with a limit that the kernel does not have" in str(caught.value)
