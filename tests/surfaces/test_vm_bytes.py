"""What `box exec` hands over and gives back, in any bytes: streams, codes, words, names."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from reconciler.guest.channel import Session, claim_port
from reconciler.guest.protocol import EXEC_MAX, Exit
from tests.live import BOX, Live
from tests.surfaces.conftest import emptied

pytestmark = [pytest.mark.vm, pytest.mark.root]

KIB = 1024
EVERY_BYTE = bytes(range(1, 256))
ODD_WORDS = [b"", b"--", b"-t", b"a b", b'"q" \'s\'', b"$HOME `id` \\", b"new\nline\r", EVERY_BYTE,
             "é\u202e".encode(), b"\xff\xfe", b"v" * 8 * KIB, b"w" * 127 * KIB]  # fmt: skip
ODD_NAME = EVERY_BYTE.replace(b"/", b"")[-200:]


@pytest.fixture(scope="module")
def guest(_shared: Live) -> Iterator[Live]:
    """A home in which `web` is up for all tests of this module: none of them changes it."""
    _shared.declare("web")
    _shared.box("up", "web")
    yield _shared
    emptied(_shared)


def words(*each: bytes) -> list[str]:
    """Arguments as the kernel hands them over: any bytes but NUL."""
    return [os.fsdecode(word) for word in each]


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 0", 0),
        ("exit 1", 1),
        ("exit 125", 125),
        ("exit 255", 255),
        *((f"kill -{signo.name[3:]} $$", 128 + signo)
          for signo in (signal.SIGHUP, signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)),
    ],
)  # fmt: skip
def test_the_status_is_the_code_or_128_and_the_signal(
    guest: Live, script: str, status: int
) -> None:
    done = guest.box("exec", "web", "--", "sh", "-c", script, status=status)
    assert (done.stdout, done.stderr) == (b"", b"")


@pytest.mark.parametrize(
    ("arguments", "status", "reason"),
    [
        (["--", "/no/such/thing"], 127, b"No such file or directory"),
        (["--", "/etc/passwd"], 126, b"Permission denied"),
        (["--", "/"], 126, b"Permission denied"),
        (["--user", "nobody-there", "--", "true"], 126, b"no such user"),
        (["--workdir", "/no/such", "--", "true"], 126, b"/no/such"),
        (["--timeout", "0.2", "--", "sleep", "60"], 124, b"took too long"),
    ],
)
def test_what_does_not_run_or_end_has_a_status_of_its_own(
    guest: Live, arguments: list[str], status: int, reason: bytes
) -> None:
    done = guest.box("exec", "web", *arguments, status=status)
    assert done.stdout == b""
    assert reason in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"no newline", bytes(range(256)) * 300, b"\x1b]0;title\x07\x1b[2J", b"\0" * 65537],
    ids=["nothing", "a newline", "no newline", "every byte", "escapes", "a frame and one more"],
)
def test_streams_are_the_same_to_the_byte(guest: Live, data: bytes) -> None:
    """Escapes too: what the command says is the user's, as with ssh."""
    done = guest.box("exec", "web", "--", "sh", "-c", "tee /dev/fd/3 3>&2", stdin=data)
    assert (done.stdout, done.stderr) == (data, data)


@pytest.mark.parametrize("redirection", ["</dev/null", "<&-", "<&- >&- 2>&-"])
def test_without_an_input_there_is_an_empty_one(guest: Live, redirection: str) -> None:
    script = f'exec "$0" exec web -- sh -c "test $(wc -c) -eq 0 && exit 9" {redirection}'
    script = script.replace("$(", "\\$(")
    done = subprocess.run(["sh", "-c", script, str(BOX)], env=guest.environment, check=False,
                          stdin=subprocess.DEVNULL, timeout=60)  # fmt: skip
    assert done.returncode == 9


def test_an_input_that_never_ends_holds_up_neither_the_end_nor_the_time_limit(guest: Live) -> None:
    reading, writing = os.pipe()
    try:
        began = time.monotonic()
        ended = guest.start("exec", "web", "--", "true", stdin=reading)
        limited = guest.start("exec", "web", "--timeout", "1", "--", "sleep", "60", stdin=reading,
                              stderr=subprocess.DEVNULL)  # fmt: skip
        reads = guest.start("exec", "web", "--timeout", "1", "--", "cat", stdin=reading,
                            stderr=subprocess.DEVNULL)  # fmt: skip
        assert [each.wait(50) for each in (ended, limited, reads)] == [0, 124, 124]
        assert time.monotonic() - began < 50
    finally:
        os.close(reading)
        os.close(writing)


def test_words_arrive_in_any_bytes(guest: Live) -> None:
    done = guest.box("exec", "web", "--", "printf", r"%s\0", *words(*ODD_WORDS))
    assert done.stdout.split(b"\0")[:-1] == ODD_WORDS


def test_200_variables_arrive_in_any_bytes(guest: Live) -> None:
    values = [word for word in ODD_WORDS if len(word) <= 8 * KIB]
    variables = {b"V%d" % number: values[number % len(values)] for number in range(199)}
    variables[b"\xff odd-name\n"] = b"x"
    options = [word for pair in variables.items() for word in ("--env", *words(b"=".join(pair)))]
    done = guest.box("exec", "web", *options, "--", "env", "-0")
    found = dict(item.split(b"=", 1) for item in done.stdout.split(b"\0") if item)
    assert variables.items() <= found.items()


def test_directories_and_files_have_names_of_any_bytes(guest: Live) -> None:
    place = os.fsdecode(b"/tmp/" + ODD_NAME)
    guest.box("exec", "web", "--", "mkdir", place)
    guest.box("exec", "web", "--workdir", place, "--", "touch", *words(ODD_NAME))
    done = guest.box("exec", "web", "--workdir", place, "--", "find", ".", "-print0")
    assert done.stdout == b".\0./" + ODD_NAME + b"\0"
    done = guest.box("exec", "web", "--workdir", f"{place}-not", "--", "true", status=126)
    assert b"\x1b" not in done.stderr


def test_a_long_list_of_arguments_arrives_and_a_longer_one_is_refused(guest: Live) -> None:
    arguments = [f"{number:07}" for number in range(16_000)]  # 128 KiB with their NULs
    script = 'echo $#; printf "%s" "$@" | sha256sum'
    said = guest.box("exec", "web", "--", "sh", "-c", script, "sh", *arguments).stdout
    assert said.split()[0] == b"16000"
    longer = [random.Random(1).randbytes(1000).hex()] * (EXEC_MAX // 2000)  # noqa: S311
    for list_ in (longer, arguments * 2):
        touch = ["sh", "-c", "touch /tmp/it-ran", "sh"]
        done = guest.box("exec", "web", "--", *touch, *list_, status=125)
        assert done.stdout == b""
        assert b"too long" in done.stderr or b"1 to 16384 arguments" in done.stderr
    guest.box("exec", "web", "--", "test", "-e", "/tmp/it-ran", status=1)


def test_50_children_in_the_background_delay_nothing_and_leave_no_zombie(guest: Live) -> None:
    vm = guest.vm("web")
    for _ in range(50):
        with claim_port(vm.directory(guest.home)) as sock:
            began = time.monotonic()
            with Session(sock, bytes.fromhex(vm.token)) as session:
                command = ["sh", "-c", "sleep 0.05 & (sleep 300 >/dev/null 2>&1 &); exit 3"]
                end = session.exec(command, {}, stdin=None, stdout=1, stderr=2)
            # What still held the output after it is cut off on a busy host.
            assert end == Exit(3, 0, timed_out=False, truncated=end.truncated)
            assert time.monotonic() - began < 60
    said = guest.box("exec", "web", "--", "sh", "-c", "cat /proc/[0-9]*/stat").stdout
    states = [line.rpartition(b")")[2].split()[0] for line in said.splitlines()]
    assert b"Z" not in states
    assert b"sleep" not in said
