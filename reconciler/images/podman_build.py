"""`podman build`, watched while it runs and ended without leaving a container behind."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.images import podman
from reconciler.linux import subtree
from reconciler.linux.process import CommandFailed, start

if TYPE_CHECKING:
    from subprocess import Popen

_BUILD_SECONDS = 2 * 3600.0
_ENDING_SECONDS = 20.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_LOOK_SECONDS = 0.05
_BEAT_SECONDS = 1.0
_PIPE_BYTES = 1 << 16  # what a pipe holds at most (pipe(7))
_LINE_BYTES = 4096
# What apt, apk, dnf and the scripts of packages use. NET_BIND_SERVICE and SETPCAP of podman's own
# list are not among it, nor is what containers.conf may add.
_CAPABILITIES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETFCAP",
    "SETGID",
    "SETUID",
    "SYS_CHROOT",
)


def arguments(directory: Path, base: str, name: str, *, network: bool) -> list[str]:
    """Return podman's arguments to build `directory`/Containerfile from the image `base`.

    The context is `directory`/context. With `network` it is podman's default, which the user's
    containers.conf chooses; nothing of the host's is asked for here.
    """
    argv = ["build", "--pull=never", "--format=oci", "--http-proxy=false"]
    argv += ["--pid=private", "--ipc=private", "--identity-label=false"]
    argv += ["--cap-drop=all", f"--cap-add={','.join(_CAPABILITIES)}"]
    if not network:
        argv.append("--network=none")
    argv += [f"--from={base}", f"--tag={name}", f"--file={directory / 'Containerfile'}"]
    return [*argv, str(directory / "context")]


def build(argv: list[str], temporary: Path, tell: Callable[[list[str]], None]) -> int:
    """Run podman with these arguments, tell the lines of its output, and return its status.

    `temporary` takes podman's own temporary files. `tell` gets the lines as they come, and every
    second in which none come an empty list, so that it can raise what stops the build. Whatever is
    raised, podman has ended, and so has the step that it was running. Raises CommandFailed after
    two hours.
    """
    command = podman.command(*argv)
    env = {**podman.environment(), "TMPDIR": str(temporary)}
    with contextlib.ExitStack() as stack:
        reading, writing = os.pipe()
        stack.callback(os.close, reading)
        with os.fdopen(writing, "wb"):
            child = stack.enter_context(start(command, stdout=writing, stderr=writing, env=env))
        with _ended_with(child):
            for lines in _lines(_pieces(reading, child)):
                tell(lines)
        return child.wait()


@contextlib.contextmanager
def _ended_with(child: Popen[bytes]) -> Iterator[None]:
    """End podman when the block raises.

    Whatever signal podman gets, it dies without a thought for the step it is running, which goes
    on, nor for its own containers in the storage. When the step fails it cleans both up. So the
    step is what is killed, and every next one, until podman has given up.
    """
    try:
        yield
    except BaseException:
        try:
            _let_fail(child)
        finally:
            if child.poll() is None:
                _kill_step(child)
        raise


def _kill_step(child: Popen[bytes]) -> None:
    """Kill the step of a podman that is about to be killed, whoever hits Ctrl-C once more."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        # No new container while the last one is looked for.
        os.killpg(child.pid, signal.SIGSTOP)
        subtree.kill_containers(child.pid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _let_fail(child: Popen[bytes]) -> None:
    deadline = time.monotonic() + _ENDING_SECONDS
    pidfd = os.pidfd_open(child.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(pidfd, selectors.EVENT_READ)
            while time.monotonic() < deadline:
                subtree.kill_containers(child.pid)
                if selector.select(_LOOK_SECONDS):
                    return
    finally:
        os.close(pidfd)


def _lines(pieces: Iterable[bytes]) -> Iterator[list[str]]:
    """Turn pieces of output into the lines that each one completes."""
    pending = b""
    for piece in pieces:
        *lines, pending = (pending + piece).replace(b"\r", b"\n").split(b"\n")
        # No line has a length of its choice: of a progress bar's, or a hostile one's.
        pending = pending[:_LINE_BYTES]
        yield [line[:_LINE_BYTES].decode(errors="replace") for line in lines]
    yield [pending.decode(errors="replace")]


def _pieces(reading: int, child: Popen[bytes]) -> Iterator[bytes]:
    """Yield what comes through the pipe until the child has ended; b"" when nothing comes."""
    os.set_blocking(reading, False)
    deadline = time.monotonic() + _BUILD_SECONDS
    with contextlib.ExitStack() as stack:
        pidfd = os.pidfd_open(child.pid)
        stack.callback(os.close, pidfd)
        selector = stack.enter_context(selectors.DefaultSelector())
        selector.register(reading, selectors.EVENT_READ)
        selector.register(pidfd, selectors.EVENT_READ)
        ended = False
        while not ended:
            ended = any(key.fd == pidfd for key, _ in selector.select(_BEAT_SECONDS))
            if time.monotonic() > deadline:
                raise CommandFailed(f"podman build did not end within {_BUILD_SECONDS:.0f} s")
            # What podman wrote before its end is in the pipe, which holds no more than this.
            piece = _read(reading)
            if piece == b"" and reading in selector.get_map():
                selector.unregister(reading)
            yield piece or b""


def _read(fd: int) -> bytes | None:
    """Return all that the pipe holds, b"" at its end, None when it holds nothing now."""
    try:
        return os.read(fd, _PIPE_BYTES)
    except BlockingIOError:
        return None
