"""What the short way prints: one line at a time, to the right stream."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Print a line on stdout: what was asked for."""
    sys.stdout.write(text + "\n")


def tell(text: str) -> None:
    """Print a line on stderr: what is going on, or went wrong."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
