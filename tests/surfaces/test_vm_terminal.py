"""`-t` and `box shell` in real terminals, with real guests."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from tests.live import BOX, Live, until
from tests.surfaces.terminals import Terminal, in_terminal

pytestmark = [pytest.mark.vm, pytest.mark.root]


@pytest.fixture
def web(vms: Live) -> Live:
    vms.declare("web")
    vms.box("up", "web")
    return vms


def start(live: Live, *arguments: str, term: str = "vt220") -> AbstractContextManager[Terminal]:
    return in_terminal([BOX, *arguments], {**live.environment, "TERM": term})


@contextlib.contextmanager
def shell(live: Live, *options: str) -> Iterator[Terminal]:
    """Yield a terminal with an interactive shell of the guest's at its prompt."""
    with start(live, "exec", "-t", *options, "web", "--", "sh") as terminal:
        terminal.until(b"# ")
        yield terminal


def test_size_and_resize_arrive(web: Live) -> None:
    with shell(web) as terminal:
        assert terminal.is_raw()
        terminal.type(b"stty size\r")
        terminal.until(b"40 132\r\n")
        terminal.type(b"trap 'echo changed' WINCH; echo set\r")
        terminal.until(b"\nset\r\n")
        terminal.resize(24, 77)
        terminal.type(b"stty size\r")
        terminal.until(b"24 77\r\n")
        terminal.type(b"exit 7\r")
        assert terminal.wait() == 7
        assert terminal.attributes() == terminal.before


def test_control_c_ends_what_runs_in_front_inside(web: Live) -> None:
    with shell(web) as terminal:
        terminal.type(b"sleep 371\r")
        ps = ("exec", "web", "--", "ps")
        until(lambda: b"sleep 371" in web.box(*ps).stdout)
        terminal.type(b"\x03")
        terminal.until(b"# ")
        terminal.type(b"echo status $?\r")
        terminal.until(b"status 130\r\n")
        assert terminal.process.poll() is None
        assert b"sleep 371" not in web.box(*ps).stdout


def test_control_z_stops_what_runs_in_front_inside(web: Live) -> None:
    with shell(web) as terminal:
        terminal.type(b"sleep 372\r")
        until(lambda: b"sleep 372" in web.box("exec", "web", "--", "ps").stdout)
        terminal.type(b"\x1a")
        terminal.until(b"# ")
        terminal.type(b"jobs\r")
        terminal.until(b"Stopped")
        assert terminal.process.poll() is None


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM])
def test_a_signal_to_box_leaves_the_terminal_as_it_was(web: Live, signo: signal.Signals) -> None:
    with shell(web) as terminal:
        assert terminal.attributes() != terminal.before
        terminal.process.send_signal(signo)
        assert terminal.wait() != 0
        assert terminal.attributes() == terminal.before


def test_a_command_that_ignores_them_is_left_at_the_second(web: Live) -> None:
    script = "trap 'echo no' TERM HUP; echo up; while :; do sleep 0.1; done"
    with start(web, "exec", "-t", "web", "--", "sh", "-c", script) as terminal:
        terminal.until(b"up\r\n")
        terminal.process.send_signal(signal.SIGTERM)
        terminal.until(b"no\r\nno\r\n")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait() == 128 + signal.SIGTERM
        assert terminal.attributes() == terminal.before


def test_the_end_of_the_sandbox_leaves_the_terminal_as_it_was(web: Live) -> None:
    with shell(web) as terminal:
        os.kill(web.pid("web"), signal.SIGKILL)
        assert terminal.wait() == 125
        assert terminal.attributes() == terminal.before
        assert b"went away" in terminal.shown


def test_a_stop_gives_the_terminal_back_and_going_on_takes_it_again(web: Live) -> None:
    inner = f"set -m; {BOX} exec -t web -- sh; echo outer $?; stty -a; fg; echo ended $?"
    with in_terminal(["sh", "-c", inner], web.environment) as terminal:
        terminal.until(b"# ")
        front = os.tcgetpgrp(terminal.ours)
        os.killpg(front, signal.SIGTSTP)
        terminal.until(b"outer 148")
        terminal.until(b" icanon")
        until(terminal.is_raw)
        terminal.type(b"echo $((40 + 2))\r")
        terminal.until(b"42\r\n")
        terminal.type(b"exit 3\r")
        terminal.until(b"ended 3\r\n")


def test_the_caller_s_term_goes_along_unless_another_is_given(web: Live) -> None:
    script = "echo term=$TERM"
    with start(web, "exec", "-t", "web", "--", "sh", "-c", script) as terminal:
        terminal.until(b"term=vt220\r\n")
    with start(web, "exec", "-t", "-e", "TERM=dumb", "web", "--", "sh", "-c", script) as terminal:
        terminal.until(b"term=dumb\r\n")
    with start(web, "exec", "web", "--", "sh", "-c", script) as terminal:
        terminal.until(b"term=xterm\r\n")


def test_run_has_a_terminal_too(vms: Live) -> None:
    vms.declare("web")
    with start(vms, "run", "-it", "web", "--", "sh", "-c", "stty size; tty") as terminal:
        terminal.until(b"40 132\r\n/dev/pts/0\r\n", 120)
        assert terminal.wait() == 0
        assert terminal.attributes() == terminal.before
    assert vms.leftovers() == []


def test_without_a_terminal_minus_t_is_refused_before_anything_starts(vms: Live) -> None:
    vms.declare("web")
    for verb in ("run", "exec"):
        done = vms.box(verb, "-t", "web", "--", "true", status=125)
        assert b"-t needs a terminal, and standard input is none." in done.stderr


def test_a_shell_is_the_user_s_own_at_home(web: Live) -> None:
    with start(web, "shell", "web") as terminal:
        terminal.until(b"# ")
        terminal.type(b"echo $0 $SHELL $USER $LOGNAME $PWD $TERM; stty size\r")
        terminal.until(b"\n-sh /bin/sh root root /root vt220\r\n40 132\r\n")
        terminal.type(b"exit 5\r")
        assert terminal.wait() == 5
        assert terminal.attributes() == terminal.before


def test_a_shell_reads_a_script_where_there_is_no_terminal(web: Live) -> None:
    done = web.box("shell", "web", stdin=b"tty; echo $0; exit 4\n", status=4)
    assert done.stdout == b"not a tty\n-sh\n"


def test_a_shell_without_its_file_is_bin_sh(web: Live) -> None:
    script = r"sed -i 's,root:/bin/sh,root:/bin/none,' /etc/passwd; echo 'ext:x:7:7::/tmp:' "
    script += ">>/etc/passwd"
    web.box("exec", "web", "--", "sh", "-c", script)
    assert web.box("shell", "web", stdin=b"echo $0 $SHELL").stdout == b"-sh /bin/none\n"
    done = web.box("shell", "-u", "ext", "web", stdin=b"echo $0 $SHELL $USER $PWD; id -u")
    assert done.stdout == b"-sh /bin/sh ext /tmp\n7\n"
    done = web.box("shell", "-u", "1234", "web", stdin=b"echo $SHELL $USER $PWD; id -u")
    assert done.stdout == b"/bin/sh /\n1234\n"
    assert web.box("shell", "-u", "nobody", "web", stdin=b"id", status=1).stdout == b""
    web.box("shell", "web", "--", "true", status=125)
