from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from reconciler.surfaces.cli import endings

REPO = Path(endings.__file__).parents[3]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
START = (
    "import os, signal, sys; sys.path.insert(0, sys.argv[1])\n"
    "from reconciler.surfaces.cli.endings import unwinding\n"
    "me = os.getpid()\n"
    "def say(text): os.write(1, (text + ' ').encode())\n"
)


def run(script: str, *arguments: str, ignored: Sequence[signal.Signals] = ()) -> tuple[int, str]:
    """Run a script with its signals at their defaults, or ignored as nohup does."""

    def prepare() -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN if each in ignored else signal.SIG_DFL)

    done = subprocess.run(
        [sys.executable, "-I", "-c", START + script, REPO, *arguments],
        stdout=subprocess.PIPE,
        timeout=30,
        check=False,
        preexec_fn=prepare,
    )
    return done.returncode, done.stdout.decode()


@pytest.mark.parametrize("signo", SIGNALS)
def test_the_first_signal_unwinds_and_no_later_one_disturbs_what_follows(
    signo: signal.Signals,
) -> None:
    script = (
        "try:\n"
        "    with unwinding():\n"
        "        try:\n"
        "            os.kill(me, int(sys.argv[2]))\n"
        "            say('went-on')\n"
        "        finally:\n"
        "            for n in (2, 15, 1, 3) * 3: os.kill(me, n)\n"
        "            say('cleaned')\n"
        "except KeyboardInterrupt as error:\n"
        "    say(f'ended-{error.args[0]}')\n"
    )
    assert run(script, str(int(signo))) == (0, f"cleaned ended-{int(signo)} ")


def test_after_the_command_nothing_disturbs() -> None:
    script = (
        "with unwinding() as endings:\n"
        "    endings.ignore()\n"
        "    for n in (2, 15, 1, 3): os.kill(me, n)\n"
        "    say('cleaned')\n"
    )
    assert run(script) == (0, "cleaned ")


@pytest.mark.parametrize("signo", SIGNALS)
def test_a_signal_that_comes_in_a_finaliser_of_pythons_unwinds_all_the_same(
    signo: signal.Signals,
) -> None:
    """Python ignores what a handler raises there."""
    script = (
        "import gc, time\n"
        "class Ended:\n"
        "    def __del__(self):\n"
        "        say('collected')\n"
        "        os.kill(me, int(sys.argv[2]))\n"
        "        say('raised-nothing')\n"
        "try:\n"
        "    with unwinding():\n"
        "        try:\n"
        "            it = Ended()\n"
        "            it.itself = it\n"
        "            del it\n"
        "            gc.collect()\n"
        "            time.sleep(20)\n"
        "            say('slept')\n"
        "        finally:\n"
        "            for n in (2, 15, 1, 3) * 3: os.kill(me, n)\n"
        "            say('cleaned')\n"
        "except KeyboardInterrupt as error:\n"
        "    say(f'ended-{error.args[0]}')\n"
    )
    assert run(script, str(int(signo))) == (0, f"collected cleaned ended-{int(signo)} ")


def test_after_the_command_nothing_that_was_ignored_comes_again() -> None:
    script = (
        "import time\n"
        "class Ended:\n"
        "    def __del__(self):\n"
        "        say('ended')\n"
        "        os.kill(me, 15)\n"
        "with unwinding() as endings:\n"
        "    it = Ended()\n"
        "    del it\n"
        "    endings.ignore()\n"
        "    time.sleep(0.2)\n"
        "    say('cleaned')\n"
    )
    assert run(script) == (0, "ended cleaned ")


def test_another_error_of_a_finaliser_is_told_as_ever() -> None:
    script = (
        "os.dup2(1, 2)\n"
        "class Ended:\n"
        "    def __del__(self): raise ValueError('as ever')\n"
        "with unwinding():\n"
        "    it = Ended()\n"
        "    del it\n"
    )
    status, said = run(script)
    assert (status, "ValueError: as ever" in said) == (0, True)


def test_a_command_gets_the_first_of_each_kind() -> None:
    script = (
        "class Session:\n"
        "    def signal(self, signo): say(f'got-{int(signo)}')\n"
        "try:\n"
        "    with unwinding() as endings:\n"
        "        with endings.forwarded(Session()):\n"
        "            for n in (2, 15, 2): os.kill(me, n)\n"
        "            say('went-on')\n"
        "except KeyboardInterrupt as error:\n"
        "    say(f'ended-{error.args[0]}')\n"
    )
    assert run(script) == (0, "got-2 got-15 ended-2 ")


def test_once_the_command_has_ended_a_signal_unwinds() -> None:
    script = (
        "class Session:\n"
        "    def signal(self, signo): say('got')\n"
        "try:\n"
        "    with unwinding() as endings:\n"
        "        with endings.forwarded(Session()):\n"
        "            pass\n"
        "        os.kill(me, 15)\n"
        "        say('went-on')\n"
        "except KeyboardInterrupt:\n"
        "    say('ended')\n"
    )
    assert run(script) == (0, "ended ")


def test_what_the_starter_has_us_ignore_stays_ignored() -> None:
    script = (
        "with unwinding():\n"
        "    for n in (2, 1): os.kill(me, n)\n"
        "    say('went-on')\n"
        "say(str(signal.getsignal(2) == signal.getsignal(1) == signal.SIG_IGN))\n"
    )
    assert run(script, ignored=(signal.SIGINT, signal.SIGHUP)) == (0, "went-on True ")


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    hook = sys.unraisablehook
    with endings.unwinding():
        assert [signal.getsignal(each) for each in SIGNALS] != before
    assert [signal.getsignal(each) for each in SIGNALS] == before
    assert sys.unraisablehook is hook
    assert os.getpid() > 0


def test_afterwards_a_signal_has_its_usual_effect() -> None:
    assert run("with unwinding(): pass\nos.kill(me, 15)\nsay('went-on')\n") == (-15, "")
