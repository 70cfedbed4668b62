"""No pattern of the schema takes long on any text: editors run them at every key."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from reconciler.boxfile.schema import schema

LENGTH = 30_000
UNITS = ["a", "a-", "a.", "a/", "a__", "0:0", ".", "/", "../", "~", " ", "=", "a:", "-", "A1"]
HEADS = ["", "/", "a", "oci-archive:", "a@sha256:"]
TAILS = ["", "!", "\n", "-", "/..", ".rpm", ".json"]


def patterns(part: object) -> Iterator[str]:
    """Every pattern in a schema."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "pattern" and isinstance(value, str):
                yield value
            else:
                yield from patterns(value)
    elif isinstance(part, list):
        for value in part:
            yield from patterns(value)


@pytest.mark.parametrize("pattern", sorted(set(patterns(schema()))))
def test_no_pattern_takes_long(pattern: str) -> None:
    compiled = re.compile(pattern)
    for unit in UNITS:
        for head in HEADS:
            for tail in TAILS:
                text = head + unit * (LENGTH // len(unit)) + tail
                began = time.process_time()
                compiled.search(text)
                assert time.process_time() - began < 0.5, (head, unit, tail)
