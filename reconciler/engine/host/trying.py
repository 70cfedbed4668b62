"""Programs are tried for as long as one that works may take, and none again that has hung."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from reconciler.engine.parts import Progress
from reconciler.errors import BoxError
from reconciler.linux import process

PROGRAM_SECONDS = 10.0
"""For a program that prints a few lines: on a busy host its first start may take seconds."""
START_SECONDS = 20.0
"""For what starts several processes, or writes a file."""

_PATIENCE_SECONDS = 1.0


class Hung(BoxError):
    """A program did not end while one that works would have."""


class NotTried(BoxError):
    """The program hung before, with another check."""


class Tries:
    """What one doctor tries; it remembers which programs hung, so that each costs its time once.

    `check_id` is the check that is being made. Waiting for more than a second is told.
    """

    def __init__(self, progress: Progress) -> None:
        self.check_id = ""
        self._progress = progress
        self._hung: set[Path] = set()

    def run(self, program: Path, *arguments: str | Path, check: bool = True) -> process.Completed:
        """As process.run. Raises Hung and NotTried too."""
        with self.on(program, PROGRAM_SECONDS):
            argv = [program, *arguments]
            return process.run(argv, timeout_seconds=PROGRAM_SECONDS, check=check)

    @contextlib.contextmanager
    def on(self, program: Path, seconds: float) -> Iterator[None]:
        """Around what uses `program` and itself gives up after `seconds`: that is a hang then.

        Raises Hung, and NotTried at once when it hung before.
        """
        self.need(program)
        began = time.monotonic()
        waiting = threading.Timer(_PATIENCE_SECONDS, self._tell, (program, seconds))
        waiting.daemon = True
        waiting.start()
        try:
            yield
        except BoxError as error:
            if isinstance(error, Hung) or time.monotonic() - began < seconds:
                raise
            self._hung.add(program)
            raise _hung(program, seconds, error) from error
        finally:
            waiting.cancel()

    def need(self, program: Path) -> None:
        """Raise NotTried when it hung before."""
        if program in self._hung:
            raise NotTried(f"not tried: {program} hung")

    def _tell(self, program: Path, seconds: float) -> None:
        # Whoever has closed our stderr does not want to know.
        with contextlib.suppress(OSError, ValueError):
            self._progress(f"{self.check_id}: waiting for {program}, {seconds:g} seconds at most")


def _hung(program: Path, seconds: float, error: BoxError) -> Hung:
    tried = next((line for line in (error.details or "").split("\n") if line[:2] == "$ "), "")
    fix = f"install your distribution's own {program.name} again"
    if tried:
        fix += f"; where that changes nothing, see what it waits for: strace -f {tried[2:]}"
    brief = f"{program} hung: it was ended after {seconds:g} seconds"
    return Hung(brief, details=tried or None, hint=fix)
