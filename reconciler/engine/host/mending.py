"""What the doctor mends by itself: what gives to this user, and takes from nobody and no setting.

Packages are quickstart's, which asks first. Settings of the kernel are their host's owner's.
"""

from __future__ import annotations

import os

from reconciler.engine import slots
from reconciler.engine.host import needs
from reconciler.engine.host.check import Check, Status
from reconciler.engine.host.need import Account, Need, NeedKind
from reconciler.engine.host.setup import set_up_host
from reconciler.engine.parts import Progress

_KINDS = {"slots": NeedKind.SUBORDINATE_IDS, "cgroups": NeedKind.CGROUPS}


def mendable(checks: tuple[Check, ...], account: Account) -> tuple[Need, ...]:
    """What can be brought for the checks that failed; each need says what takes root to do.

    Raises Missing when no IDs are left to give.
    """
    kinds = _kinds(checks)
    if not kinds:
        return ()
    found = needs.host_needs(account, slots=_wanted_slots(kinds))
    return tuple(need for need in found if need.kind in kinds)


def mend(checks: tuple[Check, ...], account: Account, progress: Progress) -> tuple[Need, ...]:
    """As root: bring it, and return what was brought. Raises as set_up_host does."""
    kinds = _kinds(checks)
    if not kinds or os.geteuid() != 0:
        return ()
    wanted = _wanted_slots(kinds)
    return set_up_host(account, slots=wanted, progress=progress, kinds=kinds)


def _kinds(checks: tuple[Check, ...]) -> frozenset[NeedKind]:
    failed = {each.id for each in checks if each.status is Status.FAILED}
    return frozenset(kind for check_id, kind in _KINDS.items() if check_id in failed)


def _wanted_slots(kinds: frozenset[NeedKind]) -> int:
    return len(set(slots.held().values())) + 1 if NeedKind.SUBORDINATE_IDS in kinds else 0
