from __future__ import annotations

import queue
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.controller.exits import Exits
from reconciler.linux.identity import ProcessIdentity, identify
from tests.controller.sleepers import until


@contextmanager
def sleep() -> Iterator[tuple[subprocess.Popen[bytes], ProcessIdentity]]:
    with subprocess.Popen(["/bin/sleep", "600"]) as child:
        try:
            until(lambda: Path(f"/proc/{child.pid}/exe").readlink().name == "sleep")
            identity = identify(child.pid)
            assert identity is not None
            yield child, identity
        finally:
            child.kill()


@pytest.fixture
def ended() -> queue.SimpleQueue[str]:
    return queue.SimpleQueue()


@pytest.fixture
def exits(ended: queue.SimpleQueue[str]) -> Iterator[Exits]:
    exits = Exits(ended.put)
    exits.start()
    yield exits
    exits.stop()


def test_an_end_is_told_at_once_and_once(exits: Exits, ended: queue.SimpleQueue[str]) -> None:
    with sleep() as (child, identity):
        exits.watch("web", identity)
        exits.watch("web", identity)
        child.kill()
        assert ended.get(timeout=60) == "web"
    assert ended.empty()


def test_a_process_that_is_gone_already(exits: Exits, ended: queue.SimpleQueue[str]) -> None:
    with sleep() as (child, identity):
        child.kill()
        child.wait()
        exits.watch("web", identity)
        assert ended.get(timeout=60) == "web"


def test_only_the_last_process_of_a_name_counts(
    exits: Exits, ended: queue.SimpleQueue[str]
) -> None:
    with sleep() as (first, one), sleep() as (second, two), sleep() as (third, three):
        exits.watch("web", one)
        exits.watch("web", two)
        exits.watch("db", three)
        first.kill()
        first.wait()
        third.kill()
        assert ended.get(timeout=60) == "db"
        exits.watch("web", None)
        second.kill()
        second.wait()
    assert ended.empty()


def test_stopping_lets_the_processes_live(ended: queue.SimpleQueue[str]) -> None:
    exits = Exits(ended.put)
    exits.start()
    with sleep() as (child, identity):
        exits.watch("web", identity)
        exits.stop()
        assert child.poll() is None
        exits.watch("web", identity)
    assert ended.empty()
