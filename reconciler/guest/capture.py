"""What a command wrote, kept in bounded memory: the beginning and the end of it."""

from __future__ import annotations

from typing import NamedTuple

HEAD_BYTES = 512 << 10
TAIL_BYTES = 512 << 10
# A character of UTF-8 has at most this many bytes behind its first.
_FOLLOWING = 3


class Gap(NamedTuple):
    """The part of a stream that was not kept: `length` bytes from `offset` on."""

    offset: int
    length: int


class Kept(NamedTuple):
    """What was kept, beginning and end joined, as text.

    `encoding` is "utf-8", or "base64" where the bytes are not UTF-8. With a gap, UTF-8 is cut
    between characters, so up to three bytes on either side of the gap belong to it too.
    """

    text: str
    encoding: str
    gap: Gap | None


class Capture:
    """A function of bytes, to be the `stdout` or `stderr` of a command.

    Keeps the stream's first `head_bytes` and its last `tail_bytes`; `total` counts all of it.
    Holds at most head_bytes + 2 * tail_bytes and one piece, however much comes.
    """

    def __init__(self, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self.total = 0
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail = bytearray()

    def __call__(self, data: bytes) -> None:
        """Take the next piece of the stream."""
        self.total += len(data)
        room = self._head_bytes - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._tail_bytes:
            self._trim()

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_bytes)]

    @property
    def gap(self) -> Gap | None:
        """What is missing between beginning and end, None when all is there."""
        self._trim()
        missing = self.total - len(self._head) - len(self._tail)
        return Gap(len(self._head), missing) if missing else None

    @property
    def data(self) -> bytes:
        """The bytes that were kept, beginning and end joined."""
        self._trim()
        return bytes(self._head + self._tail)

    def kept(self) -> Kept:
        """The same as text, for JSON."""
        gap = self.gap
        try:
            return self._as_text(gap) if gap else Kept(self.data.decode(), "utf-8", None)
        except UnicodeDecodeError:
            import binascii

            return Kept(binascii.b2a_base64(self.data, newline=False).decode(), "base64", gap)

    def _as_text(self, gap: Gap) -> Kept:
        import codecs

        decoder = codecs.getincrementaldecoder("utf-8")()
        head = decoder.decode(bytes(self._head))
        begun = len(decoder.getstate()[0])
        ended = _continued(self._tail)
        tail = self._tail[ended:].decode()
        return Kept(head + tail, "utf-8", Gap(gap.offset - begun, gap.length + begun + ended))


def _continued(data: bytearray) -> int:
    """How many bytes at the beginning may be of a character that began before them."""
    count = 0
    while count < min(_FOLLOWING, len(data)) and 0x80 <= data[count] < 0xC0:
        count += 1
    return count
