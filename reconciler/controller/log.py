"""The controller's log: for people on stderr, as JSON lines in a file of bounded size."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

_FILE_BYTES = 1 << 20
_OLD_FILES = 2
_FIRST_REMINDER_SECONDS = 600.0


@contextlib.contextmanager
def open_log(path: Path) -> Iterator[structlog.stdlib.BoundLogger]:
    """A logger to stderr and, rotating, to `path`. A log that cannot be written stops nothing."""
    logging.raiseExceptions = False
    # Not getLogger: nobody else's settings, and two controllers of one process stay apart.
    logger = logging.Logger("box")  # noqa: LOG001
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    tty = sys.stderr.isatty()
    screen = logging.StreamHandler()
    screen.setFormatter(_formatter(structlog.dev.ConsoleRenderer(colors=tty)))
    logger.addHandler(screen)
    try:
        file = logging.handlers.RotatingFileHandler(
            path, maxBytes=_FILE_BYTES, backupCount=_OLD_FILES, encoding="utf-8"
        )
    except OSError as error:
        logger.warning("cannot log to %s: %s", path, error.strerror)
    else:
        file.setFormatter(_formatter(structlog.processors.JSONRenderer()))
        logger.addHandler(file)
    wrapped: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logger,
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    try:
        yield wrapped
    finally:
        for handler in logger.handlers:
            # A full disk says so once more for what is still in the buffer.
            with contextlib.suppress(OSError):
                handler.close()


def _formatter(renderer: structlog.typing.Processor) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
    )


class News:
    """Tells what is new from what was said: the same again is told after 10 minutes, 20, 40..."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: dict[tuple[str, str], tuple[str, int, float, float]] = {}

    def count(self, name: str, topic: str, text: str) -> int:
        """How often `text` was so by now if it should be said, else 0."""
        key = (name, topic)
        now = self._clock()
        before, times, due, wait = self._said.get(key, ("", 0, 0.0, 0.0))
        if before != text:
            self._said[key] = (text, 1, now + _FIRST_REMINDER_SECONDS, _FIRST_REMINDER_SECONDS)
            return 1
        if now < due:
            self._said[key] = (text, times + 1, due, wait)
            return 0
        self._said[key] = (text, times + 1, now + 2 * wait, 2 * wait)
        return times + 1

    def over(self, name: str, topic: str) -> bool:
        """Forget what was said of a topic; whether there was anything."""
        return self._said.pop((name, topic), None) is not None
