"""One whole trial: a probe in the VMM's place is read from both sides and tries everything.

Also run as an ordinary user, by `python3` alone: nothing here is of a third party.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.backends import jail
from reconciler.confinement import judging
from reconciler.confinement.policy import Isolation, Slot
from reconciler.linux import reading
from reconciler.linux.identity import open_process
from tests.probe import agreement, standing, targets
from tests.probe.agreement import Sides

_END_SECONDS = 20.0


@dataclass(frozen=True)
class Trial:
    """What came of it, as JSON has it too: `attempts` are [id, outcome, errno, value] each.

    `facts` are the verdicts by promise, `disagreements` where inside and outside differ, `later`
    the promises that fail once everything was tried, `ended` whether the last attempt was its end.
    """

    facts: dict[str, str]
    disagreements: list[str]
    attempts: list[list[Any]]
    later: list[str]
    ended: bool
    argv: list[str]
    environment: list[str]
    pids_limit: int


def run(
    home: Path, folder: Path, program: Path, isolation: Isolation, slot: Slot | None, ids: list[str]
) -> Trial:
    """Launch, read, try all `ids`, and read again. `folder` is for what is aimed at."""
    launch = standing.launch_of(home, program, isolation, slot)
    with targets.made(folder) as aims, standing.standing(launch) as stand:
        standing.give_disk(stand, aims.words)
        view = stand.talk.view()
        read = reading.read_process(stand.who, stand.policy)
        sides = Sides(stand.policy, read, view, jail.outer_maps())
        attempts = stand.talk.attempts([each for each in ids if each != "limit.memory"])
        # It sleeps now, and is still what it was.
        again = judging.judge(stand.policy, reading.read_process(stand.who, stand.policy))
        attempts.append(stand.talk.attempt("limit.memory"))
        with open_process(stand.who) as process:
            ended = process is None or process.wait(_END_SECONDS)
        return Trial(
            facts={each.promise: each.verdict for each in judging.judge(stand.policy, read)},
            disagreements=agreement.disagreements(sides),
            attempts=[[each.id, each.outcome, each.errno, each.value] for each in attempts],
            later=[each.promise for each in again if each.failed],
            ended=ended,
            argv=view["argv"],
            environment=view["environment"],
            pids_limit=stand.policy.pids_limit,
        )
