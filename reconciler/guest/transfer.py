"""One command's input and output: a loop over poll in which nothing waits for one side alone."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from reconciler.errors import BoxError, GuestFailed
from reconciler.guest import protocol
from reconciler.guest.protocol import Decoder, Exit, Frame, ProtocolError
from reconciler.guest.sinks import Sink
from reconciler.guest.sources import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

RECEIVE_SIZE = 1 << 18
_STDIN_PIECE = 1 << 15
# How much may wait for a slow reader of ours before we stop reading from the guest.
_SINK_LIMIT = 1 << 18
# The guest enforces the time limit. One that is stopped, or lies, gets this much longer.
_GRACE_SECONDS = 5.0
# A signal that comes between Python's look for one and poll(2) ends no poll: it is seen after it.
_LONGEST_WAIT_SECONDS = 1.0
_SIGKILL = 9

Target = int | Callable[[bytes], object]


class ChannelClosed(GuestFailed):
    """The VM or its agent went away in the middle of a session."""


class Asides:
    """Frames beside a command's input: `send` may be called from a signal handler or a thread."""

    def __init__(self) -> None:
        self._queue: deque[bytes] = deque(maxlen=64)
        self.fd, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def send(self, frame: bytes) -> None:
        """Queue a frame and wake the loop."""
        self._queue.append(frame)
        try:
            os.write(self._wake, b"\0")
        except BlockingIOError:
            return  # full: it will wake up anyway

    def take(self) -> list[bytes]:
        """What was sent since the last call."""
        try:
            os.read(self.fd, 4096)
        except BlockingIOError:
            return []
        return [self._queue.popleft() for _ in range(len(self._queue))]

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.fd)
        os.close(self._wake)


class Transfer:
    """The state of one EXEC, from its frame to its EXIT."""

    def __init__(
        self,
        sock: socket.socket,
        decoder: Decoder,
        asides: Asides,
        stdin: Source | None,
        sinks: Sequence[Sink],
    ) -> None:
        self._sock = sock
        self._decoder = decoder
        self._asides = asides
        self._stdin = stdin
        self._sinks = dict(zip((protocol.STDOUT, protocol.STDERR), sinks, strict=True))
        self._out = bytearray()
        self._unacknowledged = 0
        self._started = False
        self._exit: Exit | None = None

    @property
    def unsent(self) -> bytes:
        """What of the input's frames is still to be sent before anything else is."""
        return bytes(self._out)

    def run(self, request: bytes, timeout_ms: int) -> Exit:
        """Send the EXEC frame and move bytes until its EXIT came and all output is delivered.

        A command that ended in time is delivered whole, however long our reader takes. One that
        did not is given up some seconds after its limit, as `timeout` ends a command whose reader
        has stopped: what nobody took by then is lost. When the guest breaks the rules or goes
        away, what it said before is delivered first.
        """
        self._sock.settimeout(0)
        self._out += request
        if self._stdin is None:
            self._out += protocol.encode_frame(protocol.STDIN_EOF)
        limit = time.monotonic() + timeout_ms / 1000 + _GRACE_SECONDS if timeout_ms else None
        try:
            end = self._until_exit(limit)
        except BoxError:
            with contextlib.suppress(OSError):
                self._deliver(limit)
            raise
        self._deliver(limit if end.timed_out else None)
        self._asides.take()
        return end

    def _until_exit(self, limit: float | None) -> Exit:
        while True:
            self._step(_wait(self._wanted(), limit))
            if self._exit is not None:
                return self._exit
            if _is_past(limit):
                self._sock.shutdown(socket.SHUT_RDWR)
                return Exit(-1, _SIGKILL, timed_out=True)

    def _deliver(self, limit: float | None) -> None:
        """Have our readers take what is left, until `limit` at most."""
        while wanted := self._waiting_sinks():
            self._flush(_wait(wanted, limit))
            if _is_past(limit):
                return

    def _wanted(self) -> dict[int, int]:
        wanted = self._waiting_sinks()
        sock = self._sock.fileno()
        if self._out:
            wanted[sock] = select.POLLOUT
        if not any(sink.pending >= _SINK_LIMIT for sink in self._sinks.values()):
            wanted[sock] = wanted.get(sock, 0) | select.POLLIN
        if len(self._out) < _STDIN_PIECE:
            wanted[self._asides.fd] = select.POLLIN
        if self._stdin is not None and self._room():
            wanted[self._stdin.fd] = wanted.get(self._stdin.fd, 0) | select.POLLIN
        return wanted

    def _waiting_sinks(self) -> dict[int, int]:
        return {sink.fd: select.POLLOUT for sink in self._sinks.values() if sink.pending}

    def _step(self, events: dict[int, int]) -> None:
        self._flush(events)
        if self._asides.fd in events:
            for frame in self._asides.take():
                self._out += frame
        if self._stdin is not None and events.get(self._stdin.fd, 0) & ~select.POLLOUT:
            self._read_stdin(self._stdin)
        ready = events.get(self._sock.fileno(), 0)
        if ready & (select.POLLIN | select.POLLHUP | select.POLLERR):
            self._receive()
        if self._out:
            self._send()

    def _flush(self, events: dict[int, int]) -> None:
        for sink in self._sinks.values():
            if sink.pending and events.get(sink.fd, 0) & ~select.POLLIN:
                sink.flush()

    def _room(self) -> int:
        """How many bytes of stdin may be read now."""
        if len(self._out) >= _STDIN_PIECE:
            return 0
        return min(_STDIN_PIECE, protocol.STDIN_WINDOW - self._unacknowledged)

    def _read_stdin(self, stdin: Source) -> None:
        room = self._room()
        # None since poll, if a signal's frame took the last of it; nothing read is no end.
        data = stdin.read(room) if room else None
        if data:
            self._out += protocol.encode_frame(protocol.STDIN, data)
            self._unacknowledged += len(data)
        elif data is not None:
            self._out += protocol.encode_frame(protocol.STDIN_EOF)
            self._stdin = None

    def _send(self) -> None:
        try:
            done = self._sock.send(self._out)
        except BlockingIOError:
            return
        except OSError as error:
            raise ChannelClosed("the sandbox went away while the command ran") from error
        del self._out[:done]

    def _receive(self) -> None:
        try:
            data = self._sock.recv(RECEIVE_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            raise ChannelClosed("the sandbox went away while the command ran") from error
        if not data:
            raise ChannelClosed("the sandbox went away while the command ran")
        for frame in self._decoder.feed(data):
            if self._exit is not None:
                raise ProtocolError("the guest's agent went on after the command's exit")
            self._take(frame)

    def _take(self, frame: Frame) -> None:
        kind, payload = frame
        if kind == protocol.ERROR:
            details = protocol.decode_error(payload)
            raise GuestFailed("the guest's agent could not run the command", details=details)
        if kind == protocol.STARTED and not self._started:
            self._started = True
        elif not self._started:
            raise ProtocolError(f"the guest's agent sent {protocol.NAMES[kind]} before STARTED")
        elif kind in self._sinks:
            self._sinks[kind].put(payload)
        elif kind == protocol.STDIN_ACK:
            self._acknowledge(protocol.decode_number(payload))
        elif kind == protocol.EXIT:
            self._exit = protocol.decode_exit(payload)
        else:
            raise ProtocolError(f"the guest's agent sent {protocol.NAMES[kind]} unasked")

    def _acknowledge(self, count: int) -> None:
        if not 0 < count <= self._unacknowledged:
            raise ProtocolError("the guest's agent acknowledged input that it was not sent")
        self._unacknowledged -= count


def _is_past(limit: float | None) -> bool:
    return limit is not None and time.monotonic() >= limit


def _wait(wanted: dict[int, int], limit: float | None) -> dict[int, int]:
    """Poll what is wanted, until `limit` at most; nothing when it is time to look again."""
    poller = select.poll()
    for fd, mask in wanted.items():
        poller.register(fd, mask)
    seconds = _LONGEST_WAIT_SECONDS
    if limit is not None:
        seconds = min(max(0.0, limit - time.monotonic()), seconds)
    return dict(poller.poll(seconds * 1000 + 1))
