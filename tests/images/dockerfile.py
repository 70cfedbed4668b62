"""A reader of Containerfiles that owes nothing to what wrote them: as imagebuilder reads them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

SCANNER_BYTES = 64 << 10  # bufio.MaxScanTokenSize


@dataclass(frozen=True)
class Instruction:
    """One instruction; `words` are what its JSON holds, or the words of its line."""

    name: str
    flags: tuple[str, ...]
    words: tuple[str, ...]
    is_json: bool


def parse(text: bytes) -> list[Instruction]:
    """Split, continue, strip comments and decode, the way a builder does."""
    found = []
    lines = re.split(rb"\r?\n", text)
    assert lines.pop() == b"", "the last line has no end"
    while lines:
        line = _logical(lines)
        if line.strip():
            found.append(_instruction(line.decode("utf-8")))
    return found


def _logical(lines: list[bytes]) -> bytes:
    line = b""
    while lines:
        piece = lines.pop(0)
        assert len(piece) < SCANNER_BYTES, "a scanner refuses this line"
        if piece.lstrip().startswith(b"#"):
            assert not re.match(rb"#\s*(escape|syntax)\s*=", piece), "a directive"
            continue
        continued = re.fullmatch(rb"(.*)\\[ \t]*", piece, re.DOTALL)
        if continued is None:
            return line + piece
        line += continued[1]
    return line


def _instruction(line: str) -> Instruction:
    name, _, rest = line.strip().partition(" ")
    flags = []
    while match := re.match(r"\s*(--\S+)\s+", rest):
        flags.append(match[1])
        rest = rest[match.end() :]
    assert not re.search(r"<<-?[\"']?[A-Za-z0-9_]", line), "a here-document"
    try:
        words = json.loads(rest)
    except ValueError:
        return Instruction(name.upper(), tuple(flags), tuple(rest.split()), is_json=False)
    assert isinstance(words, list)
    assert all(isinstance(word, str) for word in words)
    return Instruction(name.upper(), tuple(flags), tuple(words), is_json=True)
