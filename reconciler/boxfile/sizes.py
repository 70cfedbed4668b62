"""Sizes as people write them: a whole number and one of K, M, G, T (powers of 1024)."""

from __future__ import annotations

import re

SIZE_PATTERN = "[1-9][0-9]{0,17}[KMGT]"
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_size(text: str) -> int:
    """Return the number of bytes of a size like `10G`; ValueError says what a size looks like."""
    if not re.fullmatch(SIZE_PATTERN, text):
        raise ValueError("must be a whole number with its unit K, M, G or T, like 10G")
    return int(text[:-1]) * UNITS[text[-1]]


def format_size(size_bytes: int) -> str:
    """Return the shortest exact size: `1G` for 1 << 30. ValueError when it is not whole in K."""
    for unit, factor in reversed(UNITS.items()):
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    raise ValueError(f"{size_bytes} bytes is not a whole number of KiB")
