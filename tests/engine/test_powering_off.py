"""How long a guest has to write /data out."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from reconciler.engine import powering_off
from reconciler.linux import identity
from reconciler.linux.identity import ProcessIdentity
from tests.engine.stuck_vm import WritingOut, served

Sleeper = Callable[[], tuple[subprocess.Popen[bytes], ProcessIdentity]]
TOKEN = b"t" * 32


def test_a_slow_guest_is_waited_for_when_one_with_less_time_was_given_up(
    tmp_path: Path, sleeper: Sleeper
) -> None:
    assert powering_off.WRITE_OUT_SECONDS == 60
    _, who = sleeper()
    given_up, slow = WritingOut(), WritingOut()
    ended: list[bool] = []
    directories = [tmp_path / "given-up", tmp_path / "slow"]
    for directory in directories:
        directory.mkdir(mode=0o700)
    with (
        served(directories[0], given_up),
        served(directories[1], slow),
        identity.open_process(who) as vmm,
    ):
        assert vmm is not None

        def as_box_does() -> None:
            ended.append(powering_off.power_off(directories[1], TOKEN, vmm, 1))

        waiting = threading.Thread(target=as_box_does)
        waiting.start()
        assert slow.begun.wait(30)
        assert not powering_off.power_off(directories[0], TOKEN, vmm, 1, write_out_seconds=0.2)
        # Only now: were both given the same, the slow one would be given up by then.
        slow.let()
        waiting.join(30)
        given_up.let()
    assert ended == [True]
