"""Patterns for text that leaves the Boxfile: for a command line, a Containerfile, a guest."""

from __future__ import annotations

import re

# Line breaks, escapes and the NUL: in a scalar that reaches a command line, a file format or a
# guest each of them can become a second instruction.
CONTROL_CHARACTERS = r"\x00-\x1f\x7f-\x9f\u2028\u2029"
LINE_BREAKS = r"\n\r\x0b\x0c\x85\u2028\u2029"
# What a file may hold besides: tabs and line ends.
FILE_CONTROL_CHARACTERS = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029"


def check_no_controls(text: str) -> str:
    """Return the text, or raise ValueError when it holds a control character or line break."""
    if re.search(f"[{CONTROL_CHARACTERS}]", text):
        raise ValueError("must not contain control characters or line breaks")
    return text
