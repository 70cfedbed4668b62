from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tests.interrupts import interrupted

LONG_SECONDS = 60.0


def wait_long() -> None:
    """Wait in pieces: a signal between Python's look for one and a system call ends no wait."""
    deadline = time.monotonic() + LONG_SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.01)


class Finalised:
    """Keeps whoever finalises it, and says so."""

    def __init__(self) -> None:
        self.itself = self
        self.begun = threading.Event()

    def __del__(self) -> None:
        self.begun.set()
        wait_long()


@pytest.fixture
def _collected_only_when_told() -> Iterator[None]:
    """What is garbage is found by the test's own call, and in no other place or thread."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_collected_only_when_told")
def test_an_interrupt_that_python_ignores_comes_again() -> None:
    began = time.monotonic()
    hook = sys.unraisablehook
    it = Finalised()
    ignored: list[bool] = []

    def block(begun: threading.Event) -> None:
        with interrupted(begun.wait):
            gc.collect()
            ignored.append(begun.is_set())
            wait_long()

    begun = it.begun
    del it
    with pytest.raises(KeyboardInterrupt):
        block(begun)
    assert ignored == [True]
    assert time.monotonic() - began < LONG_SECONDS / 2
    assert sys.unraisablehook is hook


def test_one_that_the_block_swallows_does_not() -> None:
    swallowed = []
    with interrupted(0.05):
        try:
            wait_long()
        except KeyboardInterrupt:
            swallowed.append(True)
        time.sleep(0.3)
    assert swallowed == [True]


def test_a_block_that_has_ended_before_is_not_interrupted() -> None:
    with interrupted(LONG_SECONDS):
        pass
