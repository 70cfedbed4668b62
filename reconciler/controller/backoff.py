"""How long to wait before the next try, per sandbox; kept on disk, so that a restart of the
controller does not turn a crash loop into a busy loop.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from reconciler.errors import BoxError
from reconciler.linux import files

FIRST_SECONDS = 10.0
LONGEST_SECONDS = 300.0
HEALTHY_SECONDS = 600.0
"""Up for so long, a sandbox is as good as new."""

STALLED_LEVEL = 6
"""From this many failures in a row on, every wait is the longest: it does not work by itself."""


@dataclass(frozen=True)
class Backoff:
    """Failures in a row of one spec (its digest). Times are Unix seconds: they outlive a boot.

    A start that follows another within HEALTHY_SECONDS counts as a failure: something ended it.
    """

    digest: str = ""
    level: int = 0
    not_before: float = 0.0
    last_start: float = 0.0

    @property
    def stalled(self) -> bool:
        """Whether it is past hoping that the next try succeeds."""
        return self.level >= STALLED_LEVEL

    def for_spec(self, digest: str) -> Backoff:
        """The same for the same spec, a fresh one for another."""
        return self if self.digest == digest else Backoff(digest)

    def wait_seconds(self, now: float) -> float:
        """How long to wait yet; a clock that jumped back does not make it longer than the curve."""
        return min(max(0.0, self.not_before - now), LONGEST_SECONDS)

    def failed(self, now: float) -> Backoff:
        """After a try that failed."""
        return self._raised(self.level + 1, now)

    def started(self, now: float) -> Backoff:
        """After a start that succeeded. The first restart is at once, the next one waits."""
        level = self.level
        if self.last_start:
            level = (0 if now - self.last_start >= HEALTHY_SECONDS else level) + 1
        return replace(self._raised(level, now), last_start=now)

    def healthy(self, now: float) -> Backoff:
        """After a look that found all as declared."""
        quiet_since = max(self.not_before, self.last_start)
        if self.level and now - quiet_since >= HEALTHY_SECONDS:
            return Backoff(self.digest, last_start=self.last_start)
        return self

    def _raised(self, level: int, now: float) -> Backoff:
        if level == 0:
            return replace(self, level=0, not_before=0.0)
        wait = min(FIRST_SECONDS * 2 ** min(level - 1, STALLED_LEVEL), LONGEST_SECONDS)
        return replace(self, level=level, not_before=now + wait)


def load_backoff(home: Path, name: str) -> Backoff:
    """What is kept for a sandbox; a fresh one when nothing readable is."""
    try:
        value = files.read_json(_path(home, name))
        return Backoff(
            str(value["digest"]),
            int(value["level"]),
            float(value["not_before"]),
            float(value["last_start"]),
        )
    except (OSError, BoxError, KeyError, TypeError, ValueError):
        return Backoff()


def save_backoff(home: Path, name: str, backoff: Backoff) -> None:
    """Keep it. Where it cannot be kept (full disk, sandbox gone) it only does not last."""
    with contextlib.suppress(OSError):
        files.write_json(_path(home, name), asdict(backoff))


def _path(home: Path, name: str) -> Path:
    return home / "sandboxes" / name / "backoff.json"
