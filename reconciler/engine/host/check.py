"""A check: one part of the host, how it does, and the one thing to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Status(StrEnum):
    """How a part does. Only a failure makes the doctor's exit status 1.

    A finding weakens what is around a sandbox and breaks no promise; what is not applicable is not
    used here, or could not be tried for the reason that is given.
    """

    OK = "ok"
    FAILED = "failed"
    FINDING = "finding"
    NOT_APPLICABLE = "not_applicable"


class Group(StrEnum):
    """What a check is about: what sandboxes need, how many more fit, what the host is like."""

    NEEDED = "needed"
    CAPACITY = "capacity"
    HOST = "host"


_WITH_A_FIX = frozenset({Status.FAILED, Status.FINDING})


@dataclass(frozen=True)
class Seen:
    """What a probe saw: a plain sentence, and the one fix, a command line or a sentence.

    Failures and findings have a fix, nothing else has: ValueError.
    """

    status: Status
    found: str
    fix: str | None = None

    def __post_init__(self) -> None:
        if bool(self.fix) != (self.status in _WITH_A_FIX):
            raise ValueError(f"{self.status} with the fix {self.fix!r}")


def ok(found: str) -> Seen:
    """It works."""
    return Seen(Status.OK, found)


def failed(found: str, fix: str) -> Seen:
    """It does not, and something that box promises rests on it."""
    return Seen(Status.FAILED, found, fix)


def finding(found: str, fix: str) -> Seen:
    """It weakens the host."""
    return Seen(Status.FINDING, found, fix)


def not_applicable(found: str) -> Seen:
    """It is not used here, or was not tried."""
    return Seen(Status.NOT_APPLICABLE, found)


@dataclass(frozen=True)
class Bearing:
    """What a check has to do with box's promises, by their ids.

    `kept_by`: nothing starts under these isolations and backends while it fails, since these
    promises rest on it. `unread`: they cannot be read here. `weakened`: they are kept, and what the
    finding is about goes around them.
    """

    effect: Literal["kept_by", "unread", "weakened"]
    promises: tuple[str, ...]
    isolations: tuple[str, ...] = ("strict", "standard")
    backends: tuple[str, ...] = ("qemu",)


@dataclass(frozen=True)
class Check:
    """One check that was made. `id` stays the same for ever; `tried_as` is the UID it was made as.

    `bearing` is there for what did not do well and has to do with a promise.
    """

    id: str
    group: Group
    seen: Seen
    tried_as: int
    bearing: Bearing | None

    @property
    def status(self) -> Status:
        """How it does."""
        return self.seen.status
