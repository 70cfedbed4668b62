"""The frames of the guest agent's protocol, as pure functions over bytes.

`agent/README.md` describes the protocol. Whatever comes from the guest is hostile: every bound is
checked here, and a violation is a ProtocolError, never an exception of Python's own.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from reconciler.errors import GuestFailed, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PROTOCOL_VERSION = 1
TOKEN_SIZE = 32
NONCE_SIZE = 16
ENTROPY_SIZE = 64
MACHINE_ID_SIZE = 16
HEADER_SIZE = 8
FRAME_MAX = 65536
EXEC_MAX = 262144
STDIN_WINDOW = 131072
PING_MAX = 64
HOSTNAME_MAX = 64
ARGUMENTS_MAX = 16384
LIMITS_MAX = 16

# Public: it marks the start of a session until CLAIM sets a secret one.
UNCLAIMED_TOKEN = b"box-unclaimed-agent-protocol-v1".ljust(TOKEN_SIZE, b"\0")

CLAIM, EXEC, STDIN, STDIN_EOF, SIGNAL, PING, SHUTDOWN, RESIZE = range(1, 9)
READY, CLAIMED, STARTED, STDIN_ACK, DOWN = 0x80, 0x81, 0x82, 0x83, 0x84
PONG, SHUTTING_DOWN, STDOUT, STDERR, EXIT, ERROR = 0x86, 0x87, 0x88, 0x89, 0x8A, 0x8F

NAMES = {
    READY: "READY",
    CLAIMED: "CLAIMED",
    STARTED: "STARTED",
    STDIN_ACK: "STDIN_ACK",
    DOWN: "DOWN",
    PONG: "PONG",
    SHUTTING_DOWN: "SHUTTING_DOWN",
    STDOUT: "STDOUT",
    STDERR: "STDERR",
    EXIT: "EXIT",
    ERROR: "ERROR",
}

# The least and the most bytes of each reply's payload.
_BOUNDS = {
    READY: (9, 1024),
    CLAIMED: (0, 0),
    STARTED: (4, 4),
    STDIN_ACK: (4, 4),
    DOWN: (0, 0),
    PONG: (0, PING_MAX),
    SHUTTING_DOWN: (0, 0),
    STDOUT: (1, FRAME_MAX),
    STDERR: (1, FRAME_MAX),
    EXIT: (12, 12),
    ERROR: (4, 1024),
}

_CLAIM_MOUNT_DATA = 1
_CLAIM_REHEARSE_DATA = 2
_EXEC_TERMINAL = 1
_EXIT_TIMED_OUT = 1
_EXIT_TRUNCATED = 2
_SIGNALS = 64
_READY_STRINGS = 5


class ProtocolError(GuestFailed):
    """The guest's agent said something that the protocol does not allow."""


class Frame(NamedTuple):
    """One message of the agent: its type (READY, STDOUT, ...) and payload."""

    type: int
    payload: bytes


class Ready(NamedTuple):
    """What the agent says of itself and its kernel when a session starts.

    It is the guest's word: printable ASCII, but not necessarily true.
    """

    protocol: int
    claimed: bool
    version: str
    release: str
    kernel_version: str
    machine: str
    boot_id: str


class Exit(NamedTuple):
    """How a command ended: `code` 0-255, or -1 when signal `signo` ended it (0: none).

    `truncated`: something that it started held its output open beyond its end and was cut off.
    """

    code: int
    signo: int
    timed_out: bool
    truncated: bool = False


def exit_status(end: Exit) -> int:
    """The exit status that a shell would report: the code, or 128 + the signal's number.

    That a time limit ended it is not in here: 124 is the caller's to give.
    """
    return 128 + end.signo if end.signo else end.code


class Decoder:
    """Turns the agent's byte stream into frames, whatever pieces it comes in.

    Bytes before the session's nonce are of an older session and dropped; `started` tells whether
    the nonce was seen. Holds less than one frame.
    """

    def __init__(self, nonce: bytes) -> None:
        self._nonce = nonce
        self._buffer = bytearray()
        self.started = False

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that `data` completes. Raises ProtocolError at the first bad one."""
        self._buffer += data
        if not self.started and not self._find_nonce():
            return
        while len(self._buffer) >= HEADER_SIZE:
            kind, length = _check_header(bytes(self._buffer[:HEADER_SIZE]))
            end = HEADER_SIZE + length
            if len(self._buffer) < end:
                return
            payload = bytes(memoryview(self._buffer)[HEADER_SIZE:end])
            del self._buffer[:end]
            yield Frame(kind, payload)

    def _find_nonce(self) -> bool:
        at = self._buffer.find(self._nonce)
        if at < 0:
            # What may be its beginning stays.
            del self._buffer[: max(0, len(self._buffer) - NONCE_SIZE + 1)]
            return False
        del self._buffer[: at + NONCE_SIZE]
        self.started = True
        return True


def _check_header(header: bytes) -> tuple[int, int]:
    kind, padding, length = struct.unpack("<B3sI", header)
    bounds = _BOUNDS.get(kind)
    if bounds is None or padding != b"\0\0\0":
        raise ProtocolError("the guest's agent sent an unknown frame", details=header.hex())
    if not bounds[0] <= length <= bounds[1]:
        details = f"{NAMES[kind]} of {length} bytes"
        raise ProtocolError("the guest's agent sent a frame of a wrong length", details=details)
    return kind, length


def decode_ready(payload: bytes) -> Ready:
    """Read a READY payload. Raises ProtocolError when it is not one of this protocol's version."""
    protocol, claimed = struct.unpack_from("<HB", payload)
    if protocol != PROTOCOL_VERSION:
        details = f"protocol {protocol}, expected {PROTOCOL_VERSION}"
        raise ProtocolError("the guest's agent is of another version", details=details)
    words = payload[4:].split(b"\0")
    if len(words) != _READY_STRINGS + 1 or words[-1] or claimed > 1:
        raise ProtocolError("the guest's agent sent a malformed READY")
    version, release, kernel_version, machine, boot_id = map(_printable, words[:-1])
    return Ready(protocol, bool(claimed), version, release, kernel_version, machine, boot_id)


def _printable(word: bytes) -> str:
    if not word.isascii() or not word.decode("ascii").isprintable():
        raise ProtocolError("the guest's agent sent an unprintable name", details=repr(word))
    return word.decode("ascii")


def decode_exit(payload: bytes) -> Exit:
    """Read an EXIT payload. Raises ProtocolError when code, signal and flags make no sense."""
    code, signo, flags = struct.unpack("<iII", payload)
    by_signal = code == -1 and 1 <= signo <= _SIGNALS
    by_itself = 0 <= code <= 255 and signo == 0
    if not (by_signal or by_itself) or flags & ~(_EXIT_TIMED_OUT | _EXIT_TRUNCATED):
        details = f"code {code}, signal {signo}, flags {flags}"
        raise ProtocolError("the guest's agent sent an impossible exit", details=details)
    return Exit(code, signo, bool(flags & _EXIT_TIMED_OUT), bool(flags & _EXIT_TRUNCATED))


def decode_number(payload: bytes) -> int:
    """Read the one number of a STARTED or STDIN_ACK payload."""
    return int.from_bytes(payload, "little")


def decode_error(payload: bytes) -> str:
    """Read an ERROR payload as one line that is safe to print: "text (errno name)"."""
    number = decode_number(payload[:4])
    text = payload[4:].decode("ascii", "backslashreplace")
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    # strerror takes a C int.
    reason = os.strerror(number) if number < 4096 else f"error {number}"
    return f"{text} ({reason})"


def encode_frame(kind: int, payload: bytes = b"") -> bytes:
    """One frame of the client."""
    return struct.pack("<BxxxI", kind, len(payload)) + payload


class Claim(NamedTuple):
    """What a CLAIM gives the guest: sizes as in the constants above, the clock in nanoseconds."""

    token: bytes
    entropy: bytes
    realtime_ns: int
    machine_id: bytes
    hostname: str
    mount_data: bool = False
    rehearse_data: bool = False


def encode_claim(claim: Claim) -> bytes:
    """The CLAIM frame. Raises ValueError on a part of the wrong size: box itself makes them."""
    hostname = claim.hostname.encode("ascii")
    sizes = (len(claim.token), len(claim.entropy), len(claim.machine_id))
    if sizes != (TOKEN_SIZE, ENTROPY_SIZE, MACHINE_ID_SIZE) or len(hostname) > HOSTNAME_MAX:
        raise ValueError(sizes)
    flags = _CLAIM_MOUNT_DATA if claim.mount_data else 0
    flags |= _CLAIM_REHEARSE_DATA if claim.rehearse_data else 0
    tail = struct.pack("<BB", flags, len(hostname)) + hostname
    clock = struct.pack("<q", claim.realtime_ns)
    return encode_frame(CLAIM, claim.token + claim.entropy + clock + claim.machine_id + tail)


class Size(NamedTuple):
    """What a terminal shows, in characters; 0 is unknown."""

    rows: int
    columns: int


class Limit(NamedTuple):
    """A resource limit of setrlimit(2): `resource` is the number of the guest's kernel."""

    resource: int
    soft: int
    hard: int


UNLIMITED = (1 << 64) - 1


PROGRAM, LOGIN, OWN = 0, 2, 4


class Exec(NamedTuple):
    """What an EXEC asks for. cwd "" is /, user "" is root, timeout_ms 0 is no limit.

    With `tty` the command gets a terminal of that size for all three streams. `kind` is
    PROGRAM, a file of the image; LOGIN, the user's shell whatever argument 0 is, with cwd "" its
    home; or OWN, a program of the agent's.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str = ""
    user: str = ""
    timeout_ms: int = 0
    tty: Size | None = None
    rlimits: Sequence[Limit] = ()
    kind: int = PROGRAM


def encode_exec(request: Exec) -> bytes:
    """The EXEC frame, its strings encoded as file names are. Raises Refused when too long."""
    argv, env = request.argv, request.env
    variables = [f"{name}={value}" for name, value in env.items()]
    strings = [_encoded(word) for word in (request.cwd, request.user, *argv, *variables)]
    if any(b"\0" in word for word in strings):
        raise Refused("a command, its directory and its environment cannot hold NUL bytes")
    if any(not name or "=" in name for name in env):
        raise Refused("a variable's name cannot be empty or hold '='")
    if not argv or len(argv) > ARGUMENTS_MAX or len(env) > ARGUMENTS_MAX:
        raise Refused(f"a command has 1 to {ARGUMENTS_MAX} arguments, and as many variables")
    if not 0 <= request.timeout_ms < 1 << 32:
        raise Refused("a time limit is at most 49 days")
    flags = request.kind | (0 if request.tty is None else _EXEC_TERMINAL)
    payload = struct.pack("<IIHH", flags, request.timeout_ms, len(argv), len(env))
    payload += _size(request.tty or Size(0, 0)) + _limits(request.rlimits)
    payload += b"".join(word + b"\0" for word in strings)
    if len(payload) > EXEC_MAX:
        details = f"{len(payload)} bytes, at most {EXEC_MAX}"
        raise Refused("command and environment are too long", details=details)
    return encode_frame(EXEC, payload)


def _encoded(word: str) -> bytes:
    try:
        return os.fsencode(word)
    except UnicodeEncodeError as error:
        raise Refused("a command holds what is no character", details=repr(word)) from error


def encode_resize(size: Size) -> bytes:
    """The RESIZE frame. Raises Refused for a size that no terminal has."""
    return encode_frame(RESIZE, _size(size))


def encode_signal(signo: int) -> bytes:
    """The SIGNAL frame."""
    return encode_frame(SIGNAL, struct.pack("<I", signo))


def _size(size: Size) -> bytes:
    if not all(0 <= each < 1 << 16 for each in size):
        raise Refused("a terminal has at most 65535 rows and columns")
    return struct.pack("<HH", *size)


def _limits(limits: Sequence[Limit]) -> bytes:
    if len(limits) > LIMITS_MAX:
        raise Refused(f"a command has at most {LIMITS_MAX} resource limits")
    for limit in limits:
        if not 0 <= limit.resource < LIMITS_MAX or not 0 <= limit.soft <= limit.hard <= UNLIMITED:
            raise Refused("there is no such resource limit", details=str(tuple(limit)))
    packed = (struct.pack("<IQQ", *limit) for limit in limits)
    return struct.pack("<I", len(limits)) + b"".join(packed)
