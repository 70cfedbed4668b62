"""What a command is given, in any bytes that the kernel can hand over, and no others."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.errors import Refused
from reconciler.guest import protocol
from reconciler.guest.channel import Session
from reconciler.guest.protocol import Exit

KIB = 1024
WORDS = st.binary(max_size=60).map(lambda word: os.fsdecode(word.replace(b"\0", b"")))
VARIABLES = WORDS.filter(lambda name: name != "" and "=" not in name)


def said(session: Session, *argv: str, env: dict[str, str] | None = None, cwd: str = "") -> bytes:
    output = bytearray()
    end = session.exec(argv, env or {}, stdin=None, stdout=output.extend, stderr=2, cwd=cwd)
    assert end == Exit(0, 0, timed_out=False)
    return bytes(output)


@given(words=st.lists(WORDS, min_size=1, max_size=6))
def test_any_words_arrive(lasting_session: Session, words: list[str]) -> None:
    found = said(lasting_session, "printf", r"%s\0", *words)
    assert found == b"".join(os.fsencode(word) + b"\0" for word in words)


@given(env=st.dictionaries(VARIABLES, WORDS, max_size=200))
def test_any_variables_arrive(lasting_session: Session, env: dict[str, str]) -> None:
    found = said(lasting_session, "env", "-0", env=env).split(b"\0")
    wanted = {os.fsencode(f"{name}={value}") for name, value in env.items()}
    assert wanted <= set(found)
    assert len(found) - 1 <= len(wanted) + len(("PATH", "HOME", "TERM"))


@given(name=WORDS.filter(lambda name: "/" not in name and name not in {"", ".", ".."}))
def test_a_directory_may_have_any_name(lasting_session: Session, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / name
        place.mkdir()
        found = said(lasting_session, "sh", "-c", 'pwd -P; touch -- "$0"', name, cwd=str(place))
        assert found == os.fsencode(f"{os.path.realpath(place)}\n")
        assert [each.name for each in place.iterdir()] == [name]


def test_what_the_kernel_refuses_is_126_with_the_reason(session: Session) -> None:
    """One argument has at most 128 KiB, wherever box runs."""
    errors = bytearray()
    end = session.exec(["true", "x" * 200 * KIB], {}, stdin=None, stdout=1, stderr=errors.extend)
    assert end == Exit(126, 0, timed_out=False)
    assert errors == b"box: true: Argument list too long\n"


@pytest.mark.parametrize(
    ("argv", "env"),
    [
        (["x" * protocol.EXEC_MAX], {}),
        (["x"] * (protocol.ARGUMENTS_MAX + 1), {}),
        (["x"], {"A": "v" * protocol.EXEC_MAX}),
        (["x\0y"], {}),
        (["\ud800"], {}),
        (["x"], {"\ud800": "v"}),
    ],
    ids=["long", "many", "a long variable", "NUL", "no bytes", "no bytes in a name"],
)
def test_what_cannot_be_said_is_refused_before_anything_is_sent(
    session: Session, argv: list[str], env: dict[str, str]
) -> None:
    with pytest.raises(Refused):
        session.exec(argv, env, stdin=None, stdout=1, stderr=2)
    session.ping()
