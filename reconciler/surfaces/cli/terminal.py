"""What the short way prints: one line at a time, to the right stream."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def say(text: str) -> None:
    """Print a line on stdout: what was asked for."""
    sys.stdout.write(text + "\n")


def tell(text: str) -> None:
    """Print a line on stderr: what is going on, or went wrong."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def progress(name: str) -> Callable[[str], None]:
    """A function that tells on stderr what is being done for `name`."""

    def show(text: str) -> None:
        tell(f"{name}: {text}")

    return show
