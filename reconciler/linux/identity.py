"""Which process it is, beyond its PID: read and signalled only while it is still that one."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.errors import BoxError
from reconciler.linux import proc_stat

if TYPE_CHECKING:
    from collections.abc import Iterator

_READ_BYTES = 1 << 16
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class HiddenProcess(BoxError):
    """/proc is mounted so that we do not see a process that lives: nothing can be told of it."""


class ProcessIdentity(NamedTuple):
    """A process for all time: a PID is reused, its start time in this boot is not.

    `exe_dev` and `exe_ino` are stat(2) of the program, None when we may not look (another user's
    process, or one that is not dumpable).
    """

    pid: int
    start_time_ticks: int
    boot_id: str
    exe_dev: int | None
    exe_ino: int | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `from_dict` takes."""
        return self._asdict()

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> ProcessIdentity:
        """The identity in a record; ValueError when it is none."""
        pid, start, boot = (value.get(key) for key in ("pid", "start_time_ticks", "boot_id"))
        exe = value.get("exe_dev"), value.get("exe_ino")
        # bool is an int, and PID 0 or -1 means other things to kill(2).
        if type(pid) is not int or pid <= 0 or type(start) is not int or type(boot) is not str:
            raise ValueError("not the identity of a process")
        if any(number is not None and type(number) is not int for number in exe):
            raise ValueError("not the identity of a program")
        return cls(pid, start, boot, exe[0], exe[1])


class Process(NamedTuple):
    """A process held by a pidfd and its /proc directory: neither ever means another one."""

    identity: ProcessIdentity
    pidfd: int
    directory: int

    @property
    def alive(self) -> bool:
        """Whether it has not exited; a zombie has."""
        return not self.wait(0)

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for its exit, whoever reaps it; False when it still runs then."""
        return _exited(self.pidfd, timeout_seconds)

    def signal(self, signo: int) -> None:
        """Send `signo`. Raises ProcessLookupError when it is gone, PermissionError if refused."""
        signal.pidfd_send_signal(self.pidfd, signo)

    def unchanged(self) -> bool:
        """Whether it still runs, and still runs the same program."""
        found = _identify(self.identity.pid, self.directory)
        return found is not None and _same(found, self.identity) and self.alive

    def read(self, name: str) -> bytes:
        """The whole of /proc/PID/`name`. Raises OSError; ProcessLookupError when it is gone."""
        return read_at(self.directory, name)


@lru_cache(maxsize=1)
def boot_id() -> str:
    """This boot's random ID, which outlives every process."""
    with open(_BOOT_ID, encoding="ascii") as file:
        return file.read().strip()


def read_at(directory: int, name: str) -> bytes:
    """The whole of a file of /proc below an open directory. Raises OSError."""
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=directory)
    try:
        parts = []
        while part := os.read(fd, _READ_BYTES):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of the process that has `pid` now; None when there is none, or only a zombie.

    Raises HiddenProcess when it lives and /proc hides it.
    """
    try:
        directory = os.open(f"/proc/{pid}", _OPEN_DIRECTORY)
    except (FileNotFoundError, ProcessLookupError):
        _refuse_if_hidden(pid)
        return None
    try:
        return _identify(pid, directory)
    finally:
        os.close(directory)


def _refuse_if_hidden(pid: int) -> None:
    """Tell a process that /proc does not show (mount option hidepid=) from one that is gone."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        there = os.path.exists(f"/proc/{pid}")
        if not there and not _exited(pidfd, 0):
            raise HiddenProcess(
                f"The process {pid} runs, but /proc does not show it.",
                hint="mount /proc without hidepid, or join the group of its gid= option",
            )
    finally:
        os.close(pidfd)


def _exited(pidfd: int, timeout_seconds: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(max(0, round(timeout_seconds * 1000))))


def _identify(pid: int, directory: int) -> ProcessIdentity | None:
    try:
        stat = proc_stat.parse_stat(read_at(directory, "stat"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    if stat.state in "ZX":
        return None
    device, inode = _program(directory)
    return ProcessIdentity(pid, stat.start_time_ticks, boot_id(), device, inode)


def _program(directory: int) -> tuple[int | None, int | None]:
    try:
        found = os.stat("exe", dir_fd=directory)
    except OSError:
        return None, None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def open_process(identity: ProcessIdentity) -> Iterator[Process | None]:
    """Hold the process that `identity` names; None when it is gone, or its PID is another's now.

    The identity is compared after both descriptors are open, so what they stand for was checked.
    Raises HiddenProcess when it may live and /proc hides it.
    """
    with contextlib.ExitStack() as stack:
        yield _open(stack, identity)


def runs(who: ProcessIdentity | None) -> bool:
    """Whether this very process still runs; None never does. Raises HiddenProcess."""
    if who is None:
        return False
    with open_process(who) as process:
        return process is not None and process.alive


def _open(stack: contextlib.ExitStack, identity: ProcessIdentity) -> Process | None:
    try:
        pidfd = os.pidfd_open(identity.pid)
        stack.callback(os.close, pidfd)
        directory = os.open(f"/proc/{identity.pid}", _OPEN_DIRECTORY)
        stack.callback(os.close, directory)
    except (ProcessLookupError, FileNotFoundError):
        _refuse_if_hidden(identity.pid)
        return None
    process = Process(identity, pidfd, directory)
    # Read through the directory: if it is another process's, so is the start time. If the pidfd's
    # process still runs after that, the PID was its all the while, so both are one process.
    return process if process.unchanged() else None


def _same(found: ProcessIdentity, wanted: ProcessIdentity) -> bool:
    exe = (found.exe_dev, found.exe_ino)
    known = None not in (wanted.exe_dev, found.exe_dev)
    return (found.start_time_ticks, found.boot_id) == (
        wanted.start_time_ticks,
        wanted.boot_id,
    ) and (not known or exe == (wanted.exe_dev, wanted.exe_ino))
