"""A controller at work in a thread, as `box watch` runs it."""

from __future__ import annotations

import contextlib
import io
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import structlog

from reconciler.controller.folder import Folder
from reconciler.controller.loop import Loop, Timing
from tests.controller.sleepers import Sleepers, until


@dataclass(frozen=True)
class Watching:
    """A running loop and its log as text."""

    loop: Loop
    log: io.StringIO
    thread: threading.Thread


@contextlib.contextmanager
def watching(engine: Sleepers, folder: Path, *, resync_seconds: float = 60.0) -> Iterator[Watching]:
    """Run the loop until the block ends. A resync comes once, at the start, unless asked for."""
    text = io.StringIO()
    logger = logging.Logger("test")  # noqa: LOG001
    logger.addHandler(logging.StreamHandler(text))
    log: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logger,
        processors=[structlog.processors.format_exc_info, structlog.processors.LogfmtRenderer()],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    loop = Loop(engine, engine.home, Folder(folder), log, Timing(resync_seconds))
    failures: list[BaseException] = []

    def run() -> None:
        try:
            loop.run()
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield Watching(loop, text, thread)
    finally:
        loop.stop()
        thread.join(20)
        assert not thread.is_alive()
        assert not failures, failures
        assert "a pass broke" not in text.getvalue(), text.getvalue()


def running(engine: Sleepers, *names: str) -> None:
    """Wait until all of these run."""
    until(lambda: all(engine.pid(name) for name in names), f"start of {names}")


def is_watched(folder: Path) -> bool:
    """Whether this process has an inotify(7) watch of a folder."""
    wanted = f" ino:{folder.stat().st_ino:x} "
    for each in Path("/proc/self/fdinfo").iterdir():
        # Others come and go meanwhile.
        with contextlib.suppress(FileNotFoundError):
            if wanted in each.read_text():
                return True
    return False
