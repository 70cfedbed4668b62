"""The processes of a guest, as the agent's own program `ps` lists them."""

from __future__ import annotations

import re
from typing import NamedTuple

from reconciler.guest.protocol import ProtocolError

_LINE = re.compile(
    rb"(\d{1,10})\t(\d{1,10})\t(\d{1,10})\t([A-Za-z])\t(\d{1,20})\t(\d{1,20})\t(-|\d{1,2})"
    rb"\t([!-~]*)\t([ -~]*)"
)
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")


class Process(NamedTuple):
    """One process: `state` is the letter of proc(5), `argv` at most 1024 bytes, () for a zombie.

    `port` is the number of the channel whose command it belongs to, None for none. Names and
    arguments hold whatever the guest likes, but bytes that are no UTF-8 as backslash escapes.
    """

    pid: int
    ppid: int
    uid: int
    state: str
    rss_kib: int
    elapsed_seconds: int
    port: int | None
    name: str
    argv: tuple[str, ...]


def parse(listing: bytes) -> list[Process]:
    """Read the lines of `ps`, without a last one that is cut short. Raises ProtocolError."""
    return [_process(line) for line in listing.split(b"\n")[:-1]]


def _process(line: bytes) -> Process:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ProtocolError("the guest lists something that is no process", details=repr(line[:80]))
    pid, ppid, uid, state, rss_kib, elapsed, port, name, argv = found.groups()
    return Process(
        pid=int(pid),
        ppid=int(ppid),
        uid=int(uid),
        state=state.decode(),
        rss_kib=int(rss_kib),
        elapsed_seconds=int(elapsed),
        port=None if port == b"-" else int(port),
        name=_word(name),
        argv=tuple(map(_word, argv.split(b" "))) if argv else (),
    )


def _word(text: bytes) -> str:
    data = _ESCAPE.sub(lambda escape: bytes.fromhex(escape[1].decode()), text)
    return data.decode(errors="backslashreplace")
