from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.errors import Missing
from reconciler.linux.process import (
    PIPE,
    CommandFailed,
    find_program,
    inherited,
    install_command,
    require_program,
    run,
    run_on_terminal,
    start,
)

INTERRUPTED = """
import sys
from reconciler.linux.process import run
run(["sh", "-c", "echo $$ > $0; sleep 600 & echo $! >> $0; wait", sys.argv[1]], timeout_seconds=600)
"""


def wait_until(true: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def pids(path: Path, count: int) -> list[int]:
    wait_until(lambda: path.exists() and len(path.read_text().split()) == count)
    return [int(word) for word in path.read_text().split()]


def test_output_and_status_come_back() -> None:
    done = run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout_seconds=10, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_the_environment_is_made_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.setenv("PATH", "/nowhere")
    lines = run(["env"], timeout_seconds=10, env={"GIVEN": "1"}).stdout.decode().splitlines()
    assert sorted(line.split("=")[0] for line in lines) == ["GIVEN", "LANG", "PATH"]
    assert "/usr/bin" in next(line for line in lines if line.startswith("PATH="))
    assert inherited("SECRET", "UNSET") == {"SECRET": "x"}


def test_stdin_is_empty_unless_given() -> None:
    assert run(["cat"], timeout_seconds=10).stdout == b""
    assert run(["readlink", "/proc/self/fd/0"], timeout_seconds=10).stdout == b"/dev/null\n"


def test_bytes_of_any_size_go_in_and_out() -> None:
    data = bytes(range(256)) * 20_000  # many times a pipe's worth
    assert run(["cat"], stdin=data, timeout_seconds=30).stdout == data


def test_descriptors_are_handed_over_and_no_others(tmp_path: Path) -> None:
    with (tmp_path / "in").open("w+b") as source, (tmp_path / "out").open("w+b") as target:
        source.write(b"text")
        source.seek(0)
        run(["cat"], stdin=source.fileno(), stdout=target.fileno(), timeout_seconds=10)
        target.seek(0)
        assert target.read() == b"text"
        listing = ["sh", "-c", "ls /proc/$$/fd"]
        got = run(listing, pass_fds=(source.fileno(),), timeout_seconds=10).stdout.decode().split()
        assert sorted(int(fd) for fd in got) == [0, 1, 2, source.fileno()]


def test_a_failure_can_be_pasted() -> None:
    argv = ["sh", "-c", "echo 'what went wrong' >&2; exit 3", "two words"]
    with pytest.raises(CommandFailed) as caught:
        run(argv, timeout_seconds=10)
    details = caught.value.details or ""
    assert shlex.split(details.splitlines()[0].removeprefix("$ ")) == argv
    assert "what went wrong" in details
    assert "status 3" in caught.value.brief


def test_a_signal_is_named() -> None:
    with pytest.raises(CommandFailed, match="signal 9"):
        run(["sh", "-c", "kill -KILL $$"], timeout_seconds=10)


def test_a_program_that_is_not_there_is_an_error_of_ours() -> None:
    with pytest.raises(CommandFailed, match="cannot be started"):
        run(["/nonexistent/program"], timeout_seconds=10)


def test_only_the_tail_of_stderr_is_kept() -> None:
    script = "i=0; while [ $i -lt 3000 ]; do echo line $i of noise >&2; i=$((i+1)); done"
    stderr = run(["sh", "-c", script], timeout_seconds=30).stderr
    assert len(stderr) <= 16 << 10
    assert stderr.endswith(b"line 2999 of noise\n")


def test_endless_output_ends_the_program() -> None:
    with pytest.raises(CommandFailed, match="more than 100000 bytes"):
        run(["yes"], timeout_seconds=30, output_limit_bytes=100_000)


def test_endless_noise_meets_the_timeout() -> None:
    with pytest.raises(CommandFailed, match="did not end in time"):
        run(["sh", "-c", "yes >&2"], timeout_seconds=0.5)


def test_a_timeout_ends_the_whole_group(tmp_path: Path) -> None:
    script = "sleep 600 & echo $$ $! > $0; wait"
    # On a busy host it may not have come to that before the timeout: then it gets more time.
    for seconds in (1, 5, 25):
        with pytest.raises(CommandFailed, match="did not end in time"):
            run(["sh", "-c", script, tmp_path / "pids"], timeout_seconds=seconds)
        if (tmp_path / "pids").exists() and (tmp_path / "pids").read_text():
            break
    leader, background = pids(tmp_path / "pids", 2)
    assert not Path(f"/proc/{leader}").exists(), "not reaped"
    wait_until(lambda: not alive(background))


def test_a_background_process_with_our_output_does_not_keep_us(tmp_path: Path) -> None:
    script = "sleep 600 & echo $! > $0; echo said"
    begin = time.monotonic()
    done = run(["sh", "-c", script, tmp_path / "pids"], timeout_seconds=60)
    (background,) = pids(tmp_path / "pids", 1)
    try:
        assert done.stdout == b"said\n"
        assert time.monotonic() - begin < 30
        assert alive(background), "what a program leaves behind on purpose lives on"
    finally:
        os.kill(background, signal.SIGKILL)


def test_an_interrupt_ends_the_child_and_its_group(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "pids")]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as caller:
        try:
            leader, background = pids(tmp_path / "pids", 2)
            caller.send_signal(signal.SIGINT)
            assert caller.wait(20) == -signal.SIGINT
        finally:
            caller.kill()
    wait_until(lambda: not alive(leader) and not alive(background))


def test_an_interrupt_that_does_not_end_the_wait_is_seen_soon(tmp_path: Path) -> None:
    """One that comes right before a system call does not; here it comes to another thread."""
    os.mkfifo(tmp_path / "begun")

    def interrupt() -> None:
        (tmp_path / "begun").read_bytes()
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(["sh", "-c", "echo >$0; exec sleep 60", tmp_path / "begun"], timeout_seconds=60)
    thread.join()
    assert time.monotonic() - begin < 30


ASKING = """
import sys
from reconciler.linux.process import run_on_terminal
try:
    print("status", run_on_terminal(["sh", "-c", sys.argv[1]]))
except KeyboardInterrupt:
    print("interrupted")
"""


def on_a_terminal(script: str, typed: bytes) -> str:
    """What is seen on a terminal of its own where run_on_terminal runs `script`."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", ASKING, script])  # noqa: S606  # the child of a fork
    seen = b""
    try:
        while piece := os.read(terminal, 1024):
            seen += piece
            if b"? " in seen and typed:
                os.write(terminal, typed)
                typed = b""
    except OSError:  # EIO: nobody has the terminal open any more
        pass
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    return seen.decode().replace("\r\n", "\n")


def test_a_program_can_ask_on_our_terminal() -> None:
    seen = on_a_terminal("printf 'name? '; read x </dev/tty; echo got $x; exit 3", b"ann\n")
    assert seen == "name? ann\ngot ann\nstatus 3\n"


def test_ctrl_c_waits_for_what_the_program_makes_of_it() -> None:
    # Not at once: an interrupt while it is being started is another matter.
    script = "trap 'echo tidied; exit 1' INT; sleep 0.5; printf 'go? '; read x </dev/tty"
    assert on_a_terminal(script, b"\x03").endswith("tidied\ninterrupted\n")


def test_what_cannot_be_run_on_the_terminal_is_an_error_of_ours() -> None:
    with pytest.raises(CommandFailed, match="cannot be started"):
        run_on_terminal(["/no/such/program"])


def test_a_started_child_is_gone_after_its_block() -> None:
    with start(["cat"], stdin=PIPE, stdout=PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"ping")
        child.stdin.flush()
        assert child.stdout.read(4) == b"ping"
        pid = child.pid
    assert child.returncode == -signal.SIGKILL
    assert not Path(f"/proc/{pid}").exists()


def test_programs_are_found_where_the_system_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "sh"
    fake.write_text("#!/bin/false\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_program("sh")
    assert found is not None
    assert found.parent != tmp_path
    assert find_program("no-such-program") is None


def test_a_missing_program_says_how_to_install_it() -> None:
    with pytest.raises(Missing, match="no-such-program") as caught:
        require_program("no-such-program", "its-package")
    assert "its-package" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("os_release", "command"),
    [
        ("ID=debian\n", "sudo apt-get install p"),
        ('NAME="X"\nID=linuxmint\nID_LIKE="ubuntu debian"\n', "sudo apt-get install p"),
        ("ID=fedora\n", "sudo dnf install p"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "sudo dnf install p"),
        ("ID=arch\n", "install the package p with your distribution's package manager"),
    ],
)
def test_the_command_to_install_is_the_distributions(
    tmp_path: Path, os_release: str, command: str
) -> None:
    (tmp_path / "os-release").write_text(os_release)
    assert install_command("p", tmp_path / "os-release") == command


STARTING = """
import os, signal, sys, threading, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from reconciler.linux.process import start
armed = False
def unwind(signo, frame):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt
signal.signal(signal.SIGTERM, unwind)
def interrupt(after):
    time.sleep(after)
    # To this very thread: any other may take it and leave the main one asleep.
    signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
count = 0
for step in range(150):
    # From before the fork to after it.
    thread = threading.Thread(target=interrupt, args=(step * 2e-5,))
    try:
        armed = True
        thread.start()
        with start(["/bin/sleep", "60"]):
            # Not in one go: a signal between Python's look and the system call wakes nobody.
            for _ in range(1000):
                time.sleep(0.01)
    except KeyboardInterrupt:
        count += 1
    thread.join()
left = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
for pid in left:
    os.kill(int(pid), signal.SIGKILL)
print(count, "left:", *left)
"""


def test_an_interrupt_during_the_start_itself_loses_no_child() -> None:
    repo = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-I", "-c", STARTING, repo], capture_output=True, timeout=60, check=False
    )
    assert done.stdout == b"150 left:\n", done.stderr.decode()


def test_a_child_hears_the_signals_that_were_held_for_it() -> None:
    with start(["/bin/sleep", "60"]) as child:
        status = Path(f"/proc/{child.pid}/status").read_text().splitlines()
        deaf = [int(line.split()[1], 16) for line in status if line[:6] in ("SigBlk", "SigIgn")]
        ending = sum(1 << (signo - 1) for signo in (1, 2, 3, 15))
        assert [each & ending for each in deaf] == [0, 0]


AT_EACH_CALL = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from reconciler.linux.process import start
heard, ignored, wrong = [], [], []
sys.unraisablehook = lambda what: ignored.append(what.exc_value)
signal.signal(signal.SIGTERM, lambda *_: heard.append(True))
children = Path(f"/proc/self/task/{os.getpid()}/children")

def interrupted(step):
    left, sent, raised = step, False, False
    def at_call(frame, event, _):
        nonlocal left, sent
        left -= event == "call"
        if left < 0 and not sent:
            sent = True
            sys.setprofile(None)
            # Its handler runs here, and what it raises comes out of the call that begins.
            signal.raise_signal(signal.SIGINT)
    try:
        sys.setprofile(at_call)
        with start(["/bin/sleep", "60"]):
            sys.setprofile(None)
    except KeyboardInterrupt:
        raised = True
    finally:
        sys.setprofile(None)
    if sent and not raised and not ignored:
        wrong.append(f"{step}: lost")
    ignored.clear()
    return sent

with start(["/bin/true"]):
    pass
step = 0
while interrupted(step):
    signal.raise_signal(signal.SIGTERM)
    if not heard:
        wrong.append(f"{step}: deaf")
    heard.clear()
    for pid in children.read_text().split():
        wrong.append(f"{step}: left {pid}")
        os.kill(int(pid), signal.SIGKILL)
    step += 1
print(step > 50, *wrong)
"""


def test_an_interrupt_at_any_call_of_a_start_is_raised_and_leaves_us_with_ears() -> None:
    repo = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-I", "-c", AT_EACH_CALL, repo],
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == b"True\n", done.stderr.decode()
