from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.linux import identity
from reconciler.linux.identity import ProcessIdentity

REPO = Path(identity.__file__).parent.parent.parent


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["/bin/sleep", "60"], stdin=subprocess.DEVNULL)
    # The shell-less exec is over once the program is the one we asked for.
    while Path(f"/proc/{child.pid}/exe").readlink().name != "sleep":
        time.sleep(0.001)
    yield child
    child.kill()
    child.wait(10)


def identified(pid: int) -> ProcessIdentity:
    who = identity.identify(pid)
    assert who is not None
    return who


def test_identity_survives_json(sleeper: subprocess.Popen[bytes]) -> None:
    who = identified(sleeper.pid)
    assert ProcessIdentity.from_dict(json.loads(json.dumps(who.to_dict()))) == who
    program = Path("/bin/sleep").stat()
    assert (who.exe_dev, who.exe_ino) == (program.st_dev, program.st_ino)


@pytest.mark.parametrize(
    "change",
    [
        {"pid": 0},
        {"pid": -1},
        {"pid": True},
        {"pid": "1"},
        {"start_time_ticks": None},
        {"boot_id": 5},
        {"exe_ino": "x"},
    ],
)
def test_a_record_that_is_no_identity_is_refused(change: dict[str, object]) -> None:
    good = {"pid": 5, "start_time_ticks": 1, "boot_id": "b", "exe_dev": None, "exe_ino": None}
    assert ProcessIdentity.from_dict(good).pid == 5
    with pytest.raises(ValueError, match="not the identity"):
        ProcessIdentity.from_dict({**good, **change})


def test_signal_and_wait(sleeper: subprocess.Popen[bytes]) -> None:
    with identity.open_process(identified(sleeper.pid)) as process:
        assert process is not None
        assert process.alive
        assert not process.wait(0.01)
        process.signal(signal.SIGTERM)
        assert process.wait(10)
        # A zombie: the PID is still taken, the process has ended.
        assert process.wait(0)
        assert not process.unchanged()
        assert identity.identify(sleeper.pid) is None
        assert sleeper.wait(10) == -signal.SIGTERM
        with pytest.raises(ProcessLookupError):
            process.signal(signal.SIGTERM)
        with pytest.raises(ProcessLookupError):
            process.read("status")


@pytest.mark.parametrize(
    "change", [{"start_time_ticks": 1}, {"boot_id": "another"}, {"exe_ino": 1}, {"exe_dev": 1}]
)
def test_another_process_with_the_pid_is_not_opened(
    sleeper: subprocess.Popen[bytes], change: dict[str, int]
) -> None:
    other = identified(sleeper.pid)._replace(**change)  # type: ignore[arg-type]
    with identity.open_process(other) as process:
        assert process is None


def test_a_program_that_could_not_be_seen_does_not_matter(
    sleeper: subprocess.Popen[bytes],
) -> None:
    blind = identified(sleeper.pid)._replace(exe_dev=None, exe_ino=None)
    with identity.open_process(blind) as process:
        assert process is not None


def test_becoming_another_program_is_a_change() -> None:
    child = subprocess.Popen(
        ["/bin/sh", "-c", "read go; exec sleep 60"], stdin=subprocess.PIPE, bufsize=0
    )
    try:
        assert child.stdin is not None
        while not Path(f"/proc/{child.pid}/exe").readlink().name.endswith("sh"):
            time.sleep(0.001)
        with identity.open_process(identified(child.pid)) as process:
            assert process is not None
            assert process.unchanged()
            child.stdin.write(b"go\n")
            deadline = time.monotonic() + 60
            while process.unchanged() and time.monotonic() < deadline:
                time.sleep(0.005)
            assert not process.unchanged()
            assert process.alive
    finally:
        child.kill()
        child.communicate(timeout=10)


def test_nobody_has_the_pid() -> None:
    child = subprocess.Popen(["/bin/true"])
    who = identity.identify(child.pid)
    child.wait(10)
    assert identity.identify(child.pid) is None
    if who is not None:
        with identity.open_process(who) as process:
            assert process is None


def in_namespaces(options: list[str], script: str) -> str:
    """What `script` prints in new namespaces made by unshare(1)."""
    code = f"import sys; sys.path.insert(0, {str(REPO)!r})\n" + textwrap.dedent(script)
    done = subprocess.run(
        ["unshare", *options, sys.executable, "-I", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.root
def test_a_reused_pid_is_never_signalled() -> None:
    """The kernel is made to give the same PID again, in a process namespace of its own."""
    out = in_namespaces(
        ["--pid", "--fork", "--mount-proc"],
        """
        import signal, subprocess, time
        from reconciler.linux import identity
        first = subprocess.Popen(["sleep", "60"])
        who = identity.identify(first.pid)
        with identity.open_process(who) as held:
            first.kill(); first.wait()
            time.sleep(0.03)  # start times are in ticks of 10 ms
            while True:
                open("/proc/sys/kernel/ns_last_pid", "w").write(str(first.pid - 1))
                second = subprocess.Popen(["sleep", "60"])
                if second.pid == first.pid:
                    break
                second.kill(); second.wait()
            print(held.alive)
            try:
                held.signal(signal.SIGKILL)
            except ProcessLookupError:
                print("gone")
            try:
                held.read("status")
            except ProcessLookupError:
                print("gone")
        with identity.open_process(who) as again:
            print(again)
        print(second.poll())
        second.kill(); second.wait()
        """,
    )
    assert out.split() == ["False", "gone", "gone", "None", "None"]


@pytest.mark.root
def test_a_hidden_process_is_not_taken_for_a_dead_one() -> None:
    out = in_namespaces(
        ["--mount", "--pid", "--fork", "--mount-proc"],
        """
        import os, subprocess
        from reconciler.linux import identity
        child = subprocess.Popen(["sleep", "60"])
        who = identity.identify(child.pid)
        subprocess.run(["mount", "-o", "remount,hidepid=2", "/proc"], check=True)
        os.setgroups([]); os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        for ask in (lambda: identity.identify(child.pid),
                    lambda: identity.open_process(who).__enter__()):
            try:
                print(ask())
            except identity.HiddenProcess:
                print("hidden")
        """,
    )
    assert out.split() == ["hidden", "hidden"]
