"""Seccomp programs as the kernel holds them: what one answers to a system call. Pure.

A program is an array of struct sock_filter (linux/filter.h), run over a struct seccomp_data
(linux/seccomp.h). Of several, the kernel obeys the strictest: a call is refused when one refuses.
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_INSTRUCTIONS = 4096  # BPF_MAXINSNS
INSTRUCTION_BYTES = 8
_WORD = (1 << 32) - 1
_REFUSALS = frozenset({0x80000000, 0x00000000, 0x00030000, 0x00050000, 0x7FF00000})
"""SECCOMP_RET_KILL_PROCESS, KILL_THREAD, TRAP, ERRNO, and TRACE, which is ENOSYS untraced."""
_ACTION = 0xFFFF0000

_X86_64 = 0xC000003E  # AUDIT_ARCH_*, linux/audit.h
_I386 = 0x40000003
_AARCH64 = 0xC00000B7
_ARM = 0x40000028
_X32 = 0x40000000
_NEW_USER = 0x10000000  # CLONE_NEWUSER
# What no VMM needs, and an escape does: numbers of x86-64, of arm64.
_FORBIDDEN = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "open_by_handle_at": (304, 265),
    "personality": (135, 92),
    "setuid": (105, 146),
}
_CLONE = (56, 220)
_GETPID = (39, 172)
_MACHINES = {"x86_64": 0, "aarch64": 1}


class BadProgram(ValueError):
    """Bytes that are no program the kernel would have taken."""


def digest(programs: tuple[bytes, ...]) -> str:
    """One name for all programs of a thread, in their order: SHA-256 in hex."""
    whole = hashlib.sha256()
    for each in programs:
        whole.update(struct.pack("<I", len(each)) + each)
    return whole.hexdigest()


@lru_cache(maxsize=64)
def allowed(programs: tuple[bytes, ...], machine: str) -> tuple[str, ...]:
    """The calls no VMM needs that these programs let through; all when there is no program.

    `machine` is as uname(2) names it. Raises BadProgram, and KeyError for another machine.
    """
    column = _MACHINES[machine]
    parsed = [tuple(_parse(each)) for each in programs]
    return tuple(
        name for name, data in _calls(column) if not any(_refuses(each, data) for each in parsed)
    )


def _calls(column: int) -> Iterator[tuple[str, bytes]]:
    native = (_X86_64, _AARCH64)[column]
    for name, numbers in _FORBIDDEN.items():
        yield name, _data(numbers[column], native)
    yield "clone with a user namespace", _data(_CLONE[column], native, _NEW_USER)
    yield "the 32-bit entry", _data(20, (_I386, _ARM)[column])
    if column == 0:
        yield "the x32 entry", _data(_X32 | _GETPID[column], native)


def _data(number: int, architecture: int, first: int = 0) -> bytes:
    return struct.pack("<IIQ6Q", number, architecture, 0, first, 0, 0, 0, 0, 0)


def _parse(program: bytes) -> Iterator[tuple[int, int, int, int]]:
    length, rest = divmod(len(program), INSTRUCTION_BYTES)
    if rest or not 0 < length <= MAX_INSTRUCTIONS:
        raise BadProgram(f"{len(program)} bytes")
    return iter(struct.iter_unpack("<HBBI", program))


def run(program: bytes, data: bytes) -> int:
    """What `program` returns for the 64 bytes of a struct seccomp_data. Raises BadProgram."""
    return _run(tuple(_parse(program)), data)


def _refuses(program: tuple[tuple[int, int, int, int], ...], data: bytes) -> bool:
    return _run(program, data) & _ACTION in _REFUSALS


def _run(program: tuple[tuple[int, int, int, int], ...], data: bytes) -> int:  # noqa: C901
    """The value that the program returns. Only forward jumps exist, so it ends."""
    words = struct.unpack("<16I", data)
    a = x = at = 0
    memory = [0] * 16
    try:
        while True:
            code, yes, no, k = program[at]
            at += 1
            kind = code & 0x07
            operand = x if code & 0x08 else k
            if code == 0x20:  # BPF_LD | BPF_W | BPF_ABS: all that most programs do
                a = words[k >> 2]
            elif kind == 0x05:
                at += k if code == 0x05 else yes if _holds(code, a, operand) else no
            elif kind == 0x06:
                return a if code & 0x18 == 0x10 else k
            elif kind == 0x04:
                a = _calculated(code, a, operand)
            elif code == 0x07:
                x = a
            elif code == 0x87:
                a = x
            elif kind == 0x02:
                memory[k] = a
            elif kind == 0x03:
                memory[k] = x
            elif kind == 0x00:
                a = _loaded(code, k, memory)
            else:
                x = _loaded(code, k, memory)
    except (IndexError, KeyError, ZeroDivisionError) as error:
        raise BadProgram(f"instruction {at - 1}") from error


def _loaded(code: int, k: int, memory: list[int]) -> int:
    return {0x00: k, 0x60: memory[k & 15], 0x80: 64}[code & 0xE0]


def _holds(code: int, a: int, operand: int) -> bool:
    return {
        0x10: a == operand,
        0x20: a > operand,
        0x30: a >= operand,
        0x40: bool(a & operand),
    }[code & 0xF0]


def _calculated(code: int, a: int, operand: int) -> int:
    kind = code & 0xF0
    if kind == 0x30:
        return a // operand
    if kind == 0x80:
        return -a & _WORD
    if kind in {0x60, 0x70} and operand > 31:
        return 0
    return {
        0x00: a + operand,
        0x10: a - operand,
        0x20: a * operand,
        0x40: a | operand,
        0x50: a & operand,
        0x60: a << operand if kind == 0x60 else 0,
        0x70: a >> operand if kind == 0x70 else 0,
        0xA0: a ^ operand,
    }[kind] & _WORD
