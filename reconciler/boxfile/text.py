"""Bytes of a Boxfile to text: size, encoding, forbidden characters, before YAML sees it."""

from __future__ import annotations

import codecs
import re

from reconciler.boxfile.problems import InvalidBoxfile, Problem

MAX_BYTES = 256 << 10

# C0 and C1 controls but tab and line ends; the line separators of Unicode (YAML 1.1 breaks lines at
# them, editors do not); a byte order mark inside; noncharacters; and what reorders a line or
# cannot be seen at all, with which a reviewer sees another text than the parser (CVE-2021-42574).
# The joiners of words and emoji stay.
_FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2064"
    "\u2066-\u2069\ufeff\ufffe\uffff\U000e0000-\U000e007f]"
)
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)


def decode(data: bytes, source: str) -> str:
    """Return the text without its byte order mark; raise InvalidBoxfile naming the first fault."""
    if len(data) > MAX_BYTES:
        raise _refused(source, "", f"is larger than {MAX_BYTES >> 10} KiB")
    if data.startswith(_WIDE_MARKS):
        raise _refused(source, "", "is UTF-16 or UTF-32 text; save it as UTF-8")
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        message = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        raise _refused(source, before, message) from error
    if found := _FORBIDDEN.search(text):
        message = f"character U+{ord(found[0]):04X} is not allowed in a Boxfile"
        raise _refused(source, text[: found.start()], message)
    return text


def position(text: str, index: int) -> tuple[int, int]:
    """Line and column of a character of the text, counted from 1."""
    lines = re.split("\r\n|\r|\n", text[:index])
    return len(lines), len(lines[-1]) + 1


def _refused(source: str, before: str, message: str) -> InvalidBoxfile:
    line, column = position(before, len(before))
    return InvalidBoxfile(source, [Problem(source, line, column, "", message)])
