"""Commands from Python, through real agents that are plain processes."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from reconciler.engine import command_log
from reconciler.errors import BoxError, Refused
from reconciler.sdk import CommandFailed, NotFound, NotRunning, Sandbox
from tests.interrupts import interrupted
from tests.surfaces.sdk.ending import until_gone

MIB = 1 << 20


def test_a_command_has_its_output_and_its_status(box: Sandbox) -> None:
    done = box.exec(["sh", "-c", "printf 'out\\377'; echo err >&2; exit 7"])
    assert (done.exit_code, done.signal, done.timed_out, done.truncated) == (7, None, False, False)
    assert (done.stdout, done.stderr) == (b"out\xff", b"err\n")
    assert (done.text, done.error_text) == ("out�", "err\n")
    assert (done.stdout_bytes, done.stderr_bytes) == (4, 4)
    assert not done.ok


def test_a_signal_has_a_name(box: Sandbox) -> None:
    done = box.exec(["sh", "-c", "kill -TERM $$"])
    assert (done.exit_code, done.signal) == (143, "SIGTERM")


def test_a_time_limit_in_seconds_ends_it(box: Sandbox) -> None:
    done = box.exec(["sleep", "60"], timeout=0.3)
    assert (done.exit_code, done.signal, done.timed_out) == (124, "SIGKILL", True)
    assert 300 <= done.duration_ms < 30_000


def test_check_raises_what_the_command_said_last(box: Sandbox) -> None:
    assert box.exec(["true"]).check().ok
    with pytest.raises(CommandFailed, match="failed with status 3") as caught:
        box.exec(["sh", "-c", "printf 'why\\033[2J' >&2; exit 3"]).check()
    assert caught.value.details == "why\\x1b[2J"
    assert caught.value.result.exit_code == 3
    assert caught.value.code == "command_failed"


@pytest.mark.parametrize("stdin", ["bytes", "file", "pipe"])
def test_input_is_bytes_or_something_open(box: Sandbox, tmp_path: Path, stdin: str) -> None:
    data = os.urandom(3 * MIB)
    if stdin == "bytes":
        assert box.exec(["cat"], stdin=data).stdout == data
    elif stdin == "file":
        (tmp_path / "f").write_bytes(data)
        with (tmp_path / "f").open("rb") as file:
            assert box.exec(["cat"], stdin=file).stdout == data
    else:
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb") as sink:
            sink.write(b"x" * 1000)
            sink.close()
            assert box.exec(["cat"], stdin=source).stdout == b"x" * 1000


def test_without_input_it_is_empty(box: Sandbox) -> None:
    assert box.exec(["cat"]).stdout == b""


def test_environment_directory_and_user_are_given(box: Sandbox) -> None:
    done = box.exec(["sh", "-c", "echo $A; pwd; id -u"], env={"A": "b c"}, cwd="/usr", user="1:1")
    assert done.text == "b c\n/usr\n1\n"


def test_output_is_kept_within_the_limit_and_counted_whole(box: Sandbox) -> None:
    script = "printf first; head -c 3000000 /dev/zero; printf last"
    done = box.exec(["sh", "-c", script], limit_bytes=1000)
    assert (done.truncated, done.stdout_bytes) == (True, 3_000_009)
    assert len(done.stdout) == 1000
    assert (done.stdout[:5], done.stdout[-4:]) == (b"first", b"last")
    assert box.exec(["echo", "x"], limit_bytes=0).stdout == b""


@pytest.mark.parametrize(
    ("argv", "options"),
    [
        (["a\0b"], {}),
        ([], {}),
        (["true"], {"env": {"A=": "x"}}),
        (["true"], {"timeout": -1}),
        (["true"], {"timeout": float("nan")}),
        (["true"], {"limit_bytes": -1}),
        (["x" * 300_000], {}),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything(
    home: Path, argv: list[str], options: dict[str, float]
) -> None:
    with pytest.raises(Refused):
        Sandbox("web", home).exec(argv, **options)  # type: ignore[arg-type]
    with pytest.raises(Refused):
        Sandbox("web", home).run(argv, **options)  # type: ignore[arg-type]


def test_one_text_is_no_command(home: Path) -> None:
    with pytest.raises(TypeError, match="list of words"):
        Sandbox("web", home).exec("ls -l")


def test_what_is_not_up_says_so_by_its_code(home: Path) -> None:
    box = Sandbox("web", home)
    assert not box.is_up()
    with pytest.raises(NotRunning) as caught:
        box.exec(["true"])
    assert caught.value.code == "not_running"
    with pytest.raises(BoxError) as other:
        Sandbox("web", home / "no" / ".." / "..").exec(["true"])
    assert other.value.code == "refused"


def test_one_object_serves_eight_threads_at_once(box: Sandbox, tmp_path: Path) -> None:
    """Each command waits for all the others to have begun."""
    script = f"touch {tmp_path}/$0; while [ $(ls {tmp_path} | wc -l) -lt 8 ]; do :; done; echo $0"
    said: list[str] = []
    threads = [
        threading.Thread(
            target=lambda n=n: said.append(box.exec(["sh", "-c", script, str(n)], timeout=60).text)
        )
        for n in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(said) == [f"{n}\n" for n in range(8)]


def test_it_serves_an_asyncio_program(box: Sandbox) -> None:
    async def main() -> list[str]:
        calls = [asyncio.to_thread(box.exec, ["echo", str(n)]) for n in range(4)]
        return [done.text for done in await asyncio.gather(*calls)]

    assert asyncio.run(main()) == [f"{n}\n" for n in range(4)]


def test_an_interrupt_of_the_caller_ends_the_command(box: Sandbox, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    script = f"echo $$ >{tmp_path}/pid; echo >{tmp_path}/begun; exec sleep 60"
    with pytest.raises(KeyboardInterrupt), interrupted((tmp_path / "begun").read_bytes):
        box.exec(["sh", "-c", script])
    until_gone(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("kind", ["exec", "stream"])
def test_an_interrupt_that_does_not_end_the_wait_is_seen_soon(
    box: Sandbox, tmp_path: Path, kind: str
) -> None:
    """One that comes right before a system call does not; here it comes to another thread."""
    os.mkfifo(tmp_path / "begun")

    def interrupt() -> None:
        (tmp_path / "begun").read_bytes()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    def command() -> None:
        argv = ["sh", "-c", f"echo >{tmp_path}/begun; exec sleep 60"]
        if kind == "exec":
            box.exec(argv)
        else:
            with box.stream(argv) as process:
                process.wait()

    thread = threading.Thread(target=interrupt)
    thread.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        command()
    thread.join()
    assert time.monotonic() - began < 30


def test_the_callers_signal_handlers_stay(box: Sandbox) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    mine = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)]
    box.exec(["true"])
    assert signal.getsignal(signal.SIGTERM) is handler
    assert mine == [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)]


def test_each_command_is_in_the_log_and_what_it_said_is_not(box: Sandbox, home: Path) -> None:
    (home / "sandboxes" / "web").mkdir(exist_ok=True)
    box.exec(["sh", "-c", "cat; exit 2"], stdin=b"secret", env={"A": "secret"})
    with box.stream(["echo", "said"]) as process:
        process.wait()
    with pytest.raises(NotFound):
        box.read_file("/no/such")
    text = Path(command_log.path_of(home, "web")).read_bytes()
    lines = [line for line in map(command_log.parse, text.splitlines()) if line]
    ends = [line for line in lines if line["event"] == "end"]
    assert [(e["verb"], e["argv"][0], e["exit_code"]) for e in ends] == [
        ("exec", "sh", 2),
        ("exec", "echo", 0),
        ("cp", "send", 1),
    ]
    assert b"secret" not in text
