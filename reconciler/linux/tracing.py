"""Read the seccomp programs of another thread from the kernel: ptrace(2), seized and let go.

No thread stays stopped: the kernel lets all go when the thread that traces them ends, by whatever
death. Nothing is written to the traced one. But a signal that comes just then may end it by SIGTRAP
(seen on Linux 6.18, with PTRACE_INTERRUPT and PTRACE_DETACH alone), so no VMM that somebody uses is
read this way: only what stands in for one in the tests.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from typing import TYPE_CHECKING

from reconciler.confinement.capabilities import mask
from reconciler.confinement.filters import INSTRUCTION_BYTES, MAX_INSTRUCTIONS
from reconciler.confinement.reading import Unreadable, Withheld
from reconciler.linux import identity, procfs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Programs = tuple[bytes, ...] | Unreadable | Withheld

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long

# linux/ptrace.h
_DETACH = 17
_SEIZE = 0x4206
_INTERRUPT = 0x4207
_GET_FILTER = 0x420C
_WALL = 0x40000000  # linux/wait.h: threads that are no children too
_STOP_SECONDS = 0.5
_PAUSE_SECONDS = 0.0001
_LONGEST_PAUSE_SECONDS = 0.01
_MAX_PROGRAMS = 32
_LACKING = {
    errno.EACCES: "it takes CAP_SYS_ADMIN, and a reader without a filter of its own",
    errno.EIO: "this kernel does not show programs (CONFIG_CHECKPOINT_RESTORE)",
    errno.EINVAL: "this kernel does not show programs (CONFIG_CHECKPOINT_RESTORE)",
}


def read_programs(directory: int, tids: Sequence[int]) -> dict[int, Programs]:
    """The programs of each thread, the newest first, as they were loaded.

    `directory` is the process's in /proc, open, and says whether a thread is still its own. Each
    thread stands still for a fraction of a millisecond.
    """
    found: dict[int, Programs] = {}
    if not _may_read():
        return dict.fromkeys(tids, Withheld(_LACKING[errno.EACCES]))

    def work() -> None:
        for tid in tids:
            found[tid] = _read(directory, tid)
            if isinstance(found[tid], Withheld):
                return

    # A thread of its own: its end is what lets go of a thread that would not stop in time.
    worker = threading.Thread(target=work, name="box-programs")
    worker.start()
    worker.join()
    missing = next((each for each in found.values() if isinstance(each, Withheld)), None)
    why = missing or Unreadable("the reader failed")
    return {tid: found.get(tid, why) for tid in tids}


def _may_read() -> bool:
    # Asked first: whoever may not read the programs need not stop the thread to be told so.
    own = procfs.parse_status(identity.read_at(-1, "/proc/thread-self/status"))
    return bool(own.cap_effective & mask(["CAP_SYS_ADMIN"])) and own.seccomp_mode == 0


def _ptrace(request: int, tid: int, address: int = 0, data: int = 0) -> int:
    result = int(_libc.ptrace(request, tid, address, data))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"ptrace of thread {tid}")
    return result


def _read(directory: int, tid: int) -> Programs:
    try:
        _ptrace(_SEIZE, tid)
    except OSError as error:
        return Unreadable(str(error))
    passed_on = 0
    try:
        _ptrace(_INTERRUPT, tid)
        stopped = _wait(tid)
        if stopped is None:
            return Unreadable(f"thread {tid} did not stand still")
        passed_on = stopped
        # A stopped thread cannot end and give its number to another: now it is known whose it is.
        os.stat(f"task/{tid}", dir_fd=directory)
        return tuple(_programs(tid))
    except FileNotFoundError:
        return Unreadable(f"thread {tid} ended")
    except OSError as error:
        why = _LACKING.get(error.errno or 0)
        return Withheld(why) if why else Unreadable(str(error))
    finally:
        _let_go(tid, passed_on)


def _wait(tid: int) -> int | None:
    """Wait for the stop; the signal that is to be passed on, None when it does not come."""
    deadline = time.monotonic() + _STOP_SECONDS
    pause = _PAUSE_SECONDS
    while True:
        try:
            # Its stops only: were it a child of ours, its end is for whoever started it to see.
            found = os.waitid(os.P_PID, tid, _WALL | os.WSTOPPED | os.WNOHANG)
        except ChildProcessError:
            return None
        if found is not None:
            # The upper half names an event of tracing; without one a signal was about to arrive.
            return 0 if found.si_status >> 8 else found.si_status
        if time.monotonic() >= deadline:
            return None
        # On a busy host it first has to get a CPU.
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _programs(tid: int) -> Iterator[bytes]:
    for index in range(_MAX_PROGRAMS):
        try:
            length = _ptrace(_GET_FILTER, tid, index)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return
            raise
        if length > MAX_INSTRUCTIONS:
            raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
        buffer = ctypes.create_string_buffer(length * INSTRUCTION_BYTES)
        _ptrace(_GET_FILTER, tid, index, ctypes.addressof(buffer))
        yield buffer.raw


def _let_go(tid: int, passed_on: int) -> None:
    try:
        _ptrace(_DETACH, tid, 0, passed_on)
    except OSError as error:
        # ESRCH: it is dead, or never stood still, and goes free when our thread ends.
        if error.errno != errno.ESRCH:
            raise
