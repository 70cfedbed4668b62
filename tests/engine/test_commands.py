from __future__ import annotations

import pytest

from reconciler.engine.commands import exit_code, signal_name
from reconciler.guest.protocol import Exit


@pytest.mark.parametrize(
    ("end", "code", "name"),
    [
        (Exit(0, 0, timed_out=False), 0, None),
        (Exit(143, 0, timed_out=False), 143, None),
        (Exit(-1, 15, timed_out=False), 143, "SIGTERM"),
        (Exit(-1, 9, timed_out=True), 124, "SIGKILL"),
        (Exit(-1, 33, timed_out=False), 161, "SIG33"),
        (Exit(-1, 34, timed_out=False), 162, "SIGRTMIN"),
        (Exit(-1, 64, timed_out=False), 192, "SIGRTMIN+30"),
    ],
)
def test_an_end_has_a_code_and_the_signals_name(end: Exit, code: int, name: str | None) -> None:
    assert (exit_code(end), signal_name(end)) == (code, name)
