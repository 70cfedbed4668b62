"""The one door to child processes: list argv, an environment from nothing, always waited for."""

from __future__ import annotations

import contextlib
import os
import selectors
import shlex
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.errors import BoxError, Missing

if TYPE_CHECKING:
    from subprocess import Popen
    from types import FrameType

SYSTEM_DIRECTORIES = tuple(
    Path(directory)
    for directory in ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
)
PIPE = -1  # subprocess.PIPE, which is not imported before a child is started
DEVNULL = -3  # subprocess.DEVNULL

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_OUTPUT_LIMIT_BYTES = 16 << 20
_STDERR_TAIL_BYTES = 16 << 10
# A signal that comes between Python's look for one and the wait does not end it: it is seen later.
_LONGEST_WAIT_SECONDS = 1.0
_PIPE_BYTES = 1 << 16  # what a pipe holds at most (pipe(7))


class CommandFailed(BoxError):
    """A program that box called did not do its work; `details` holds a line to paste."""


@dataclass(frozen=True)
class Completed:
    """How a child ended: a negative `returncode` is the signal; `stderr` is only its tail."""

    returncode: int
    stdout: bytes
    stderr: bytes


def run(
    argv: Sequence[str | Path],
    *,
    stdin: int | bytes | None = None,
    stdout: int | None = None,
    timeout_seconds: float,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    cwd: Path | None = None,
    check: bool = True,
    output_limit_bytes: int = _OUTPUT_LIMIT_BYTES,
) -> Completed:
    """Run `argv` to its end and return what it wrote.

    `stdin` is /dev/null, an fd or bytes; `stdout` is kept, or goes to an fd. A background process
    that still holds the output does not keep us waiting. Raises CommandFailed on a timeout, on
    more output than the limit and, with `check`, on a status other than 0. Whatever is raised,
    the child and its process group are gone.
    """
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(_input(stdin))
        out = PIPE if stdout is None else stdout
        child = stack.enter_context(
            start(argv, stdin=source, stdout=out, stderr=PIPE, env=env, pass_fds=pass_fds, cwd=cwd)
        )
        reading = _Reading(argv, child, output_limit_bytes)
        reading.until(time.monotonic() + timeout_seconds)
        completed = Completed(child.wait(), bytes(reading.stdout), bytes(reading.stderr))
    if check and completed.returncode != 0:
        raise failure(argv, _ending(completed.returncode), completed.stderr)
    return completed


@contextlib.contextmanager
def start(
    argv: Sequence[str | Path],
    *,
    stdin: int = DEVNULL,
    stdout: int = DEVNULL,
    stderr: int = DEVNULL,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    cwd: Path | None = None,
) -> Iterator[Popen[bytes]]:
    """Start `argv` in a process group of its own; at the end of the block it is gone and reaped.

    Streams are /dev/null, PIPE or an fd. A child that has ended by itself keeps its group: what it
    left behind on purpose lives on. Raises CommandFailed when it cannot be executed.
    """
    import subprocess

    held = _Held()
    try:
        held.hold()
        child = subprocess.Popen(
            [os.fspath(word) for word in argv],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=environment(env),
            pass_fds=tuple(pass_fds),
            cwd=cwd,
            start_new_session=True,
        )
    except BaseException as error:
        held.release()
        if isinstance(error, OSError):
            raise failure(argv, f"cannot be started ({error.strerror})", b"") from error
        raise
    try:
        held.release()
        yield child
    finally:
        _end(child)


class _Held:
    """Ending signals put off, from `hold` to `release`, without the child being born deaf to them.

    A handler that raises while a child is being forked would leave one that nobody knows of.
    Handlers run in the main thread alone, so elsewhere there is nothing to hold.
    """

    def __init__(self) -> None:
        self._holding = True
        self._came: list[int] = []
        self._handlers: dict[int, Any] = {}

    def hold(self) -> None:
        import threading

        if threading.current_thread() is not threading.main_thread():
            return
        for signo in _ENDING:
            handler = signal.getsignal(signo)
            if callable(handler):
                self._handlers[signo] = handler
                signal.signal(signo, self._hear)

    def _hear(self, signo: int, frame: FrameType | None) -> None:
        if self._holding:
            self._came.append(signo)
        else:
            self._handlers[signo](signo, frame)

    def release(self) -> None:
        """Put the handlers back, all of them even if one is called and raises meanwhile.

        It may be called where nothing of ours can go on after it: what is not put back then passes
        signals on, so that nobody is deaf for it.
        """
        self._holding = False
        self._put_back(list(self._handlers.items()))

    def _put_back(self, left: list[tuple[int, Any]]) -> None:
        if not left:
            while self._came:
                signal.raise_signal(self._came.pop(0))
            return
        try:
            signal.signal(*left[0])
            del left[0]
        finally:
            self._put_back(left)


def run_on_terminal(argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> int:
    """Run `argv` in our session with our stdin, so that it can ask on the terminal; its status.

    All that it prints goes to stderr. Ctrl-C reaches it too: we wait for its answer to that.
    Raises CommandFailed when it cannot be executed.
    """
    import subprocess

    words = [os.fspath(word) for word in argv]
    try:
        child = subprocess.Popen(words, stdout=2, env=environment(env))
    except OSError as error:
        raise failure(argv, f"cannot be started ({error.strerror})", b"") from error
    interrupted = False
    while True:
        try:
            status = child.wait()
        except KeyboardInterrupt:
            interrupted = True
        else:
            break
    if interrupted:
        raise KeyboardInterrupt
    return status


def environment(given: Mapping[str, str] | None) -> dict[str, str]:
    """Return a child's whole environment: a fixed PATH, the C.UTF-8 locale and what is `given`."""
    path = ":".join(str(directory) for directory in SYSTEM_DIRECTORIES)
    return {"PATH": path, "LANG": "C.UTF-8", **(given or {})}


def inherited(*names: str) -> dict[str, str]:
    """Return those of the caller's environment variables that are set, to be given to a child."""
    return {name: os.environ[name] for name in names if name in os.environ}


def failure(argv: Sequence[str | Path], ending: str, stderr: bytes) -> CommandFailed:
    """Return the error that says how a command ended, with a line that can be pasted."""
    words = [os.fspath(word) for word in argv]
    tail = stderr[-_STDERR_TAIL_BYTES:].decode(errors="backslashreplace").strip()
    line = "$ " + shlex.join(words)
    details = f"{line}\n{tail}" if tail else line
    return CommandFailed(f"{Path(words[0]).name} {ending}", details=details)


def own_program() -> str:
    """The `box` that somebody can paste, for sudo too: that of a checkout is on nobody's PATH."""
    import shutil

    launcher = Path(__file__).parents[2] / "box"
    return str(launcher) if launcher.is_file() else shutil.which("box") or "box"


def find_program(name: str) -> Path | None:
    """Return where the system has the program `name`; the caller's PATH does not matter."""
    for directory in SYSTEM_DIRECTORIES:
        path = directory / name
        if os.access(path, os.X_OK) and path.is_file():
            return path
    return None


def require_program(name: str, package: str) -> Path:
    """Return the path of `name`, or raise Missing with the command that installs `package`."""
    path = find_program(name)
    if path is None:
        raise Missing(f"the program {name} is not installed", hint=install_command(package))
    return path


def install_command(package: str, os_release: Path = Path("/etc/os-release")) -> str:
    """Return the command line that installs `package` on this distribution."""
    try:
        text = os_release.read_text(errors="replace")
    except OSError:
        text = ""
    families = " ".join(
        line.partition("=")[2].strip().strip("\"'")
        for line in text.splitlines()
        if line.startswith(("ID=", "ID_LIKE="))
    ).split()
    if {"fedora", "rhel", "centos"} & set(families):
        return f"sudo dnf install {package}"
    if {"debian", "ubuntu"} & set(families):
        return f"sudo apt-get install {package}"
    return f"install the package {package} with your distribution's package manager"


@contextlib.contextmanager
def _input(stdin: int | bytes | None) -> Iterator[int]:
    if stdin is None:
        yield DEVNULL
    elif isinstance(stdin, int):
        yield stdin
    else:
        # A file in memory rather than a pipe: a child that writes before it reads cannot deadlock.
        fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
        try:
            with open(fd, "wb", closefd=False) as stream:
                stream.write(stdin)
            os.lseek(fd, 0, os.SEEK_SET)
            yield fd
        finally:
            os.close(fd)


def _end(child: Popen[bytes]) -> None:
    # Not reaped yet, so the PID, which is the group's too, cannot have a new owner.
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(BrokenPipeError):
        child.__exit__(None, None, None)


def _ending(returncode: int) -> str:
    if returncode >= 0:
        return f"failed with status {returncode}"
    return f"was ended by signal {-returncode}"


class _Reading:
    """Collects a child's output until it has exited and all it wrote before is read."""

    def __init__(self, argv: Sequence[str | Path], child: Popen[bytes], limit: int) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self._argv = argv
        self._child = child
        self._limit = limit

    def until(self, deadline: float) -> None:
        pidfd = os.pidfd_open(self._child.pid)
        try:
            self._until(deadline, pidfd)
        finally:
            os.close(pidfd)

    def _until(self, deadline: float, pidfd: int) -> None:
        with selectors.DefaultSelector() as selector:
            for stream in (self._child.stdout, self._child.stderr):
                if stream is not None:
                    os.set_blocking(stream.fileno(), False)
                    selector.register(stream, selectors.EVENT_READ)
            selector.register(pidfd, selectors.EVENT_READ)
            exited = False
            while not exited:
                left = max(0.0, deadline - time.monotonic())
                ready = selector.select(min(left, _LONGEST_WAIT_SECONDS))
                if not ready and time.monotonic() >= deadline:
                    raise failure(self._argv, "did not end in time", bytes(self.stderr))
                exited = any(key.fd == pidfd for key, _ in ready)
                # What the child wrote before its exit is still there; others may write on.
                streams = [key.fd for key in selector.get_map().values() if key.fd != pidfd]
                for fd in streams:
                    if not self._read(fd):
                        selector.unregister(fd)

    def _read(self, fd: int) -> bool:
        """Take all that the pipe holds now; False at the end of the stream."""
        try:
            data = os.read(fd, _PIPE_BYTES)
        except BlockingIOError:
            return True
        self._keep(fd, data)
        return bool(data)

    def _keep(self, fd: int, data: bytes) -> None:
        if self._child.stdout is not None and fd == self._child.stdout.fileno():
            self.stdout += data
            if len(self.stdout) > self._limit:
                ending = f"wrote more than {self._limit} bytes"
                raise failure(self._argv, ending, bytes(self.stderr))
        else:
            self.stderr += data
            del self.stderr[:-_STDERR_TAIL_BYTES]
