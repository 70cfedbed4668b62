from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.confinement import filters
from tests.confinement.readings import ALLOWS_ALL, REFUSES_ALL

X86 = 0xC000003E
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, EPERM, KILL = 0x7FFF0000, 0x00050001, 0x80000000
UNSHARE, CLONE, NEW_USER = 272, 56, 0x10000000


def program(*code: tuple[int, int, int, int]) -> bytes:
    return b"".join(struct.pack("<HBBI", *each) for each in code)


def allowed(*programs: bytes) -> set[str]:
    return set(filters.allowed(programs, "x86_64"))


def refusing(number: int, action: int) -> bytes:
    return program((LOAD, 0, 0, 0), (EQUAL, 0, 1, number), (RETURN, 0, 0, action),
                   (RETURN, 0, 0, ALLOW))  # fmt: skip


def test_a_filter_that_allows_all_is_found() -> None:
    assert len(allowed(ALLOWS_ALL)) == 30
    assert {"unshare", "ptrace", "the x32 entry", "the 32-bit entry"} <= allowed(ALLOWS_ALL)


def test_no_filter_at_all_lets_everything_through() -> None:
    assert allowed() == allowed(ALLOWS_ALL)


def test_a_filter_that_refuses_all_is_good() -> None:
    assert allowed(REFUSES_ALL) == set()


def test_the_strictest_of_several_counts() -> None:
    assert allowed(ALLOWS_ALL, REFUSES_ALL) == set()
    assert "unshare" not in allowed(ALLOWS_ALL, refusing(UNSHARE, EPERM))


@pytest.mark.parametrize("action", [EPERM, KILL, 0x00000000, 0x00030000, 0x7FF00000])
def test_every_way_to_refuse_counts(action: int) -> None:
    assert "unshare" not in allowed(refusing(UNSHARE, action))


@pytest.mark.parametrize("action", [ALLOW, 0x7FFC0000, 0x7FC00000])
def test_to_log_or_to_ask_somebody_is_not_to_refuse(action: int) -> None:
    assert "unshare" in allowed(refusing(UNSHARE, action))


def test_the_argument_of_clone_is_looked_at() -> None:
    by_flag = program(
        (LOAD, 0, 0, 0),
        (EQUAL, 0, 3, CLONE),
        (LOAD, 0, 0, 16),
        (0x45, 0, 1, NEW_USER),
        (RETURN, 0, 0, EPERM),
        (RETURN, 0, 0, ALLOW),
    )
    assert "clone with a user namespace" not in allowed(by_flag)
    assert "unshare" in allowed(by_flag)


def test_the_architecture_is_looked_at() -> None:
    native_only = program((LOAD, 0, 0, 4), (EQUAL, 1, 0, X86), (RETURN, 0, 0, KILL),
                          (RETURN, 0, 0, ALLOW))  # fmt: skip
    assert "the 32-bit entry" not in allowed(native_only)
    assert "the x32 entry" in allowed(native_only)
    without_x32 = program((LOAD, 0, 0, 0), (AT_LEAST, 0, 1, 0x40000000), (RETURN, 0, 0, KILL),
                          (RETURN, 0, 0, ALLOW))  # fmt: skip
    assert "the x32 entry" not in allowed(without_x32)


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (((0x00, 0, 0, 7), (0x07, 0, 0, 0), (0x0C, 0, 0, 0), (0x16, 0, 0, 0)), 14),
        (((0x01, 0, 0, 9), (0x87, 0, 0, 0), (0x16, 0, 0, 0)), 9),
        (((0x00, 0, 0, 7), (0x02, 0, 0, 3), (0x61, 0, 0, 3), (0x87, 0, 0, 0), (0x16, 0, 0, 0)), 7),
        (((0x00, 0, 0, 7), (0x14, 0, 0, 8), (0x16, 0, 0, 0)), 0xFFFFFFFF),
        (((0x00, 0, 0, 7), (0x24, 0, 0, 3), (0x16, 0, 0, 0)), 21),
        (((0x00, 0, 0, 7), (0x34, 0, 0, 2), (0x16, 0, 0, 0)), 3),
        (((0x00, 0, 0, 5), (0x44, 0, 0, 2), (0x54, 0, 0, 6), (0x16, 0, 0, 0)), 6),
        (((0x00, 0, 0, 5), (0xA4, 0, 0, 1), (0x64, 0, 0, 4), (0x74, 0, 0, 1), (0x16, 0, 0, 0)), 32),
        (((0x00, 0, 0, 1), (0x84, 0, 0, 0), (0x16, 0, 0, 0)), 0xFFFFFFFF),
        (((0x00, 0, 0, 1), (0x64, 0, 0, 32), (0x16, 0, 0, 0)), 0),
        (((0x80, 0, 0, 0), (0x16, 0, 0, 0)), 64),
        (((0x05, 0, 0, 1), (0x06, 0, 0, 1), (0x06, 0, 0, 2)), 2),
        (((0x00, 0, 0, 5), (0x25, 0, 1, 4), (0x06, 0, 0, 1), (0x06, 0, 0, 2)), 1),
        (((0x00, 0, 0, 5), (0x01, 0, 0, 5), (0x1D, 0, 1, 0), (0x06, 0, 0, 1), (0x06, 0, 0, 2)), 1),
    ],
)
def test_every_instruction_does_what_the_kernel_does(
    code: tuple[tuple[int, int, int, int], ...], result: int
) -> None:
    assert filters.run(program(*code), bytes(64)) == result


@pytest.mark.parametrize(
    "bad",
    [b"", b"1234567", program((0x00, 0, 0, 1)), program((0x20, 0, 0, 64), (RETURN, 0, 0, 0)),
     program((0x05, 0, 0, 0xFFFFFFFF)), program((0x34, 0, 0, 0), (RETURN, 0, 0, 0)),
     program((0xB1, 0, 0, 0), (RETURN, 0, 0, 0)), REFUSES_ALL * 4097],
)  # fmt: skip
def test_what_the_kernel_would_not_have_taken_is_refused(bad: bytes) -> None:
    with pytest.raises(filters.BadProgram):
        filters.allowed((bad,), "x86_64")


@given(st.lists(st.binary(min_size=8, max_size=8), max_size=40))
def test_any_bytes_end_in_an_answer_or_a_refusal(code: list[bytes]) -> None:
    try:
        filters.allowed((b"".join(code),), "x86_64")
    except filters.BadProgram:
        return


def test_the_name_of_programs_tells_where_one_ends() -> None:
    assert filters.digest((REFUSES_ALL, ALLOWS_ALL)) != filters.digest((REFUSES_ALL + ALLOWS_ALL,))
    assert filters.digest((REFUSES_ALL, ALLOWS_ALL)) != filters.digest((ALLOWS_ALL, REFUSES_ALL))


def test_a_machine_without_a_table_is_unknown() -> None:
    with pytest.raises(KeyError):
        filters.allowed((REFUSES_ALL,), "riscv64")
    assert "the x32 entry" not in filters.allowed((ALLOWS_ALL,), "aarch64")
