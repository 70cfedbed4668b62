"""Taking a port of a VM, and a session with its agent.

A VM has 16 ports, a small one fewer, each a Unix socket `p<N>` in the VM's private directory. QEMU
serves one client a socket, and a second one's connect succeeds and then waits silently; so a lock
file `p<N>.lock` says who may connect. The kernel drops the lock with its holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import time
from typing import TYPE_CHECKING

from reconciler.errors import Busy, GuestFailed, NotRunning
from reconciler.guest import protocol
from reconciler.guest.protocol import (
    Claim,
    Decoder,
    Exec,
    Exit,
    Frame,
    Limit,
    ProtocolError,
    Ready,
    Size,
)
from reconciler.guest.sinks import Sink
from reconciler.guest.sources import Source
from reconciler.guest.transfer import RECEIVE_SIZE, Asides, ChannelClosed, Target, Transfer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    StrPath = str | os.PathLike[str]

PORTS = range(16)
# The first port is kept for what must get through when commands have taken all others: the end.
COMMAND_PORTS = range(1, 16)
_RETRY_SECONDS = 0.01
_ANSWER_SECONDS = 10.0


class NoAnswer(GuestFailed):
    """Nobody at the other end of the port answers: a VM that is stuck, or another token."""


@contextlib.contextmanager
def claim_port(
    directory: StrPath, ports: Sequence[int] = COMMAND_PORTS, timeout_seconds: float = 60.0
) -> Iterator[socket.socket]:
    """Take one of the VM's ports for this process and connect to it.

    When every port is taken, tries them again and again until one is free; who waits longest is not
    served first. Raises Busy when none became free in time, NotRunning when the VM is not there.
    The socket is closed and the port free when the block ends.
    """
    deadline = time.monotonic() + timeout_seconds
    with contextlib.ExitStack() as stack:
        try:
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            directory_fd = os.open(directory, flags)
        except OSError as error:
            raise NotRunning("the sandbox is not running", details=str(error)) from error
        stack.callback(os.close, directory_fd)
        there = [port for port in ports if _is_there(directory_fd, port)]
        if not there:
            raise NotRunning("the sandbox is not running", details=f"no port in {directory}")
        port = _lock_one(directory_fd, there, deadline, stack)
        yield stack.enter_context(_connect(directory_fd, port, deadline))


def _is_there(directory_fd: int, port: int) -> bool:
    """Whether the VM has this port: small ones have fewer than 16."""
    try:
        os.stat(f"p{port}", dir_fd=directory_fd)
    except FileNotFoundError:
        return False
    return True


def _lock_one(
    directory_fd: int, ports: Sequence[int], deadline: float, stack: contextlib.ExitStack
) -> int:
    while True:
        for port in ports:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(f"p{port}.lock", flags, 0o600, dir_fd=directory_fd)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            stack.callback(os.close, lock)
            return port
        if time.monotonic() >= deadline:
            raise Busy("every channel to the sandbox is in use", hint="end a command and try again")
        time.sleep(_RETRY_SECONDS)


def _connect(directory_fd: int, port: int, deadline: float) -> socket.socket:
    # By way of /proc, because a socket's path has at most 107 bytes.
    path = f"/proc/self/fd/{directory_fd}/p{port}"
    with contextlib.ExitStack() as stack:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        stack.callback(sock.close)
        sock.settimeout(0)
        while True:
            try:
                sock.connect(path)
            except BlockingIOError as error:
                # The VMM has not taken notice yet of clients that came and went before us.
                if time.monotonic() >= deadline:
                    raise Busy("the sandbox takes no connection", details=f"port {port}") from error
                time.sleep(_RETRY_SECONDS)
            except OSError as error:
                details = f"port {port}: {error}"
                raise NotRunning("the sandbox is not running", details=details) from error
            else:
                stack.pop_all()
                return sock


class Session:
    """A session on a connected socket, which stays the caller's.

    Made by proving the token; `ready` is what the agent said of itself. One thing at a time: claim,
    ping, exec, shutdown. Only `signal` and `resize` may be called while another call is under way.
    After an exception the session is over: close the socket, which ends what it started in the
    guest.
    """

    def __init__(
        self, sock: socket.socket, token: bytes, timeout_seconds: float = _ANSWER_SECONDS
    ) -> None:
        """Start a session. Raises NoAnswer when the agent is silent, as it is to a wrong token."""
        nonce = os.urandom(protocol.NONCE_SIZE)
        self._sock = sock
        self._decoder = Decoder(nonce)
        self._asides = Asides()
        self._unsent = b""
        deadline = time.monotonic() + timeout_seconds
        try:
            self._send(token + nonce, deadline)
            self.ready: Ready = protocol.decode_ready(self._expect(protocol.READY, deadline))
        except BaseException:
            self._asides.close()
            raise

    def __enter__(self) -> Session:
        """Return the session itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give back what the session opened; the socket is left to its owner."""
        self._asides.close()

    def claim(self, claim: Claim, timeout_seconds: float = 30.0) -> None:
        """Make the VM this claim's: from here on only the new token opens sessions."""
        self._ask(protocol.encode_claim(claim), protocol.CLAIMED, timeout_seconds)

    def ping(self, timeout_seconds: float = _ANSWER_SECONDS) -> None:
        """Return when the agent has answered."""
        word = os.urandom(16)
        frame = protocol.encode_frame(protocol.PING, word)
        if self._ask(frame, protocol.PONG, timeout_seconds) != word:
            raise ProtocolError("the guest's agent answered another ping")

    def shutdown(self, deadline_ms: int, timeout_seconds: float = _ANSWER_SECONDS) -> None:
        """Ask the guest to end: TERM to all, KILL after deadline_ms, disks in order, power off.

        Returns when the agent has begun: see `down`.
        """
        frame = protocol.encode_frame(protocol.SHUTDOWN, struct.pack("<I", deadline_ms))
        self._ask(frame, protocol.SHUTTING_DOWN, timeout_seconds)

    def down(self, timeout_seconds: float) -> None:
        """Wait for the guest to say, after `shutdown`, that nothing is left to write out.

        Raises ChannelClosed when the VM went away without a word, NoAnswer.
        """
        self._expect(protocol.DOWN, time.monotonic() + timeout_seconds)

    def signal(self, signo: int) -> None:
        """Send a signal to the running command's process group.

        May be called from a signal handler of Python's and from another thread than exec's.
        """
        self._asides.send(protocol.encode_signal(signo))

    def resize(self, size: Size) -> None:
        """Tell the running command's terminal, if it has one, its new size.

        May be called as `signal` may.
        """
        self._asides.send(protocol.encode_resize(size))

    def exec(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        stdin: int | None,
        stdout: Target,
        stderr: Target,
        cwd: str = "",
        user: str = "",
        timeout_ms: int = 0,
        tty: Size | None = None,
        rlimits: Sequence[Limit] = (),
    ) -> Exit:
        """Run a command and move its bytes until it has ended and its output is delivered.

        stdin is a descriptor, or None for an empty input. stdout and stderr are descriptors or
        functions of bytes; one that fails ends the call with its exception (BrokenPipeError for a
        reader that went away). cwd "" is /, user "" is root, timeout_ms 0 is no limit. With `tty`
        the command has a terminal of that size: all it says comes on stdout.
        """
        request = Exec(argv, env, cwd, user, timeout_ms, tty, rlimits)
        return self.carry_out(request, stdin=stdin, stdout=stdout, stderr=stderr)

    def carry_out(
        self, request: Exec, *, stdin: int | None, stdout: Target, stderr: Target
    ) -> Exit:
        """Do what `exec` does, for any kind of request."""
        frame = protocol.encode_exec(request)
        with contextlib.ExitStack() as stack:
            sinks = []
            for target in (stdout, stderr):
                sink = Sink(target)
                stack.callback(sink.close)
                sinks.append(sink)
            source = None
            if stdin is not None:
                source = Source(stdin)
                stack.callback(source.close)
            transfer = Transfer(self._sock, self._decoder, self._asides, source, sinks)
            end = transfer.run(self._unsent + frame, request.timeout_ms)
            # It ended in the middle of its input: the agent still waits for the frame's rest.
            self._unsent = transfer.unsent
            return end

    def _ask(self, request: bytes, answer: int, timeout_seconds: float) -> bytes:
        deadline = time.monotonic() + timeout_seconds
        self._send(self._unsent + request, deadline)
        self._unsent = b""
        return self._expect(answer, deadline)

    def _expect(self, kind: int, deadline: float) -> bytes:
        frame = self._next(deadline)
        if frame.type == protocol.ERROR:
            details = protocol.decode_error(frame.payload)
            raise GuestFailed("the guest's agent refused", details=details)
        if frame.type != kind:
            name = protocol.NAMES[frame.type]
            raise ProtocolError(f"the guest's agent sent {name} instead of {protocol.NAMES[kind]}")
        return frame.payload

    def _next(self, deadline: float) -> Frame:
        for frame in self._decoder.feed(b""):
            return frame
        while True:
            for frame in self._decoder.feed(self._receive(deadline)):
                return frame

    def _receive(self, deadline: float) -> bytes:
        self._sock.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            data = self._sock.recv(RECEIVE_SIZE)
        except TimeoutError as error:
            raise NoAnswer("the guest's agent does not answer") from error
        except OSError as error:
            raise ChannelClosed("the sandbox went away") from error
        if not data:
            raise ChannelClosed("the sandbox went away")
        if time.monotonic() >= deadline:
            raise NoAnswer("the guest's agent does not answer")
        return data

    def _send(self, data: bytes, deadline: float) -> None:
        self._sock.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            self._sock.sendall(data)
        except TimeoutError as error:
            raise NoAnswer("the guest's agent does not take requests") from error
        except OSError as error:
            raise ChannelClosed("the sandbox went away") from error
