"""Read the seccomp programs of another thread from the kernel: ptrace(2), seized and let go.

No thread stays stopped: the kernel lets all go when the thread that traces them ends, by whatever
death. Nothing is written to the traced one, and every signal that comes meanwhile reaches it.

Whoever traces a child of its own must not wait for it elsewhere at the same time: waitpid(2) then
tells of its stops too, and subprocess.Popen.poll() takes one for a death by SIGTRAP. A VMM is no
child of ours: the OCI runtime has let go of it.
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
_LOOK = _WALL | os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
_STOPS = frozenset({os.CLD_STOPPED, os.CLD_TRAPPED})
_STOP_SECONDS = 5.0
_PAUSE_SECONDS = 0.0001
_LONGEST_PAUSE_SECONDS = 0.01
_SEIZE_LOOKS = 5
_SEIZE_PAUSE_SECONDS = 0.002
_MAX_PROGRAMS = 32
_FAILED = Unreadable("the reader failed")
_LACKING = {
    errno.EACCES: "content not read: that takes CAP_SYS_ADMIN, and a reader without a filter",
    errno.EIO: "this kernel does not show programs (CONFIG_CHECKPOINT_RESTORE)",
    errno.EINVAL: "this kernel does not show programs (CONFIG_CHECKPOINT_RESTORE)",
}


def read_programs(directory: int, tids: Sequence[int]) -> dict[int, Programs]:
    """The programs of each thread, the newest first, as they were loaded.

    `directory` is the process's in /proc, open, and says whether a thread is still its own. Each
    thread stands still for a fraction of a millisecond. Raises ProcessLookupError when one ends
    meanwhile.
    """
    found: dict[int, Programs] = {}
    ended: list[int] = []
    if not _may_read():
        return dict.fromkeys(tids, Withheld(_LACKING[errno.EACCES]))

    def work() -> None:
        for tid in tids:
            try:
                found[tid] = _read(directory, tid)
            except (FileNotFoundError, ProcessLookupError):
                ended.append(tid)
                return
            if not isinstance(found[tid], tuple):
                return

    # A thread of its own: its end is what lets go of a thread that would not stop in time.
    worker = threading.Thread(target=work, name="box-programs")
    worker.start()
    worker.join()
    if ended:
        raise ProcessLookupError(errno.ESRCH, f"thread {ended[0]} ended")
    # Where one cannot be read, the others are not stopped for nothing.
    why = next((each for each in found.values() if not isinstance(each, tuple)), _FAILED)
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
    """Its programs, or why not. Raises FileNotFoundError or ProcessLookupError when it is gone."""
    try:
        _seize(directory, tid)
    except PermissionError as error:
        return Unreadable(str(error))
    passed_on = 0
    try:
        _ptrace(_INTERRUPT, tid)
        stopped = _wait(tid)
        # A stopped thread cannot end and give its number to another: now it is known whose it is.
        os.stat(f"task/{tid}", dir_fd=directory)
        if stopped is None:
            return Unreadable(f"thread {tid} did not stand still")
        passed_on = stopped
        return tuple(_programs(tid))
    except (FileNotFoundError, ProcessLookupError):
        raise
    except OSError as error:
        why = _LACKING.get(error.errno or 0)
        return Withheld(why) if why else Unreadable(str(error))
    finally:
        _let_go(tid, passed_on)


def _seize(directory: int, tid: int) -> None:
    for _ in range(_SEIZE_LOOKS):
        try:
            _ptrace(_SEIZE, tid)
        except PermissionError:
            # It may be ending, or be held by another reading of ours: both are soon over.
            os.stat(f"task/{tid}", dir_fd=directory)
            time.sleep(_SEIZE_PAUSE_SECONDS)
        else:
            return
    _ptrace(_SEIZE, tid)


def _wait(tid: int) -> int | None:
    """Wait for the stop; the signal that is to be passed on, None when it does not come.

    Raises ProcessLookupError when the thread ends.
    """
    deadline = time.monotonic() + _STOP_SECONDS
    pause = _PAUSE_SECONDS
    while True:
        try:
            # Looked at only: were it a child of ours, its end is for whoever started it to see.
            found = os.waitid(os.P_PID, tid, _LOOK)
        except ChildProcessError as error:
            raise ProcessLookupError(errno.ESRCH, f"thread {tid} ended") from error
        if found is not None:
            if found.si_code not in _STOPS:
                raise ProcessLookupError(errno.ESRCH, f"thread {tid} ended")
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
