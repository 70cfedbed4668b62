"""What each check stands behind: promises by their ids in security/promises.yaml, and no others."""

from __future__ import annotations

import pytest

from reconciler.confinement.promises import PROMISES
from reconciler.engine.host.bearings import BEARINGS, bearing_of
from reconciler.engine.host.check import Seen, failed, finding, not_applicable, ok
from reconciler.engine.host.checks import IDS
from tests.security.promise_files import rows


def test_every_promise_that_is_named_is_in_the_list() -> None:
    listed = {each.id for each in rows()}
    assert {each.id for each in PROMISES} == listed
    for check_id, bearing in BEARINGS.items():
        assert check_id in IDS
        assert bearing.promises
        assert set(bearing.promises) <= listed


def test_every_promise_rests_on_something_that_is_tried() -> None:
    """But those that are about the VMM alone: nothing of the host can keep or break them."""
    named = {each for bearing in BEARINGS.values() for each in bearing.promises}
    vmms_own = {"terminal", "apart.namespaces", "network.interfaces", "files.kinds", "files.mapped"}
    assert {each.id for each in PROMISES} - named == vmms_own


def test_what_is_well_or_was_not_tried_bears_on_nothing() -> None:
    assert bearing_of("runtime", ok("it runs")) is None
    assert bearing_of("container.strict", not_applicable("no slot is free")) is None
    assert bearing_of("disk", failed("full", "rm")) is None


def test_what_failed_says_what_rests_on_it() -> None:
    bearing = bearing_of("slots", failed("none", "usermod"))
    assert bearing is not None
    assert bearing.effect == "kept_by"
    assert bearing.isolations == ("strict",)
    assert "apart.ids" in bearing.promises


def test_what_cannot_be_read_says_which_promise() -> None:
    bearing = bearing_of("reading.filter", not_applicable("no CAP_SYS_ADMIN"))
    assert bearing is not None
    assert (bearing.effect, bearing.promises) == ("unread", ("seccomp.filter",))


@pytest.mark.parametrize("check_id", sorted(BEARINGS))
def test_a_bearings_words_are_known(check_id: str) -> None:
    bearing = BEARINGS[check_id]
    assert set(bearing.isolations) <= {"strict", "standard"}
    assert set(bearing.backends) <= {"qemu", "firecracker", "krun", "podman"}


def test_failures_and_findings_have_one_fix_and_nothing_else_has() -> None:
    for make in (failed, finding):
        with pytest.raises(ValueError, match="fix"):
            make("broken", "")
    with pytest.raises(ValueError, match="fix"):
        Seen(ok("x").status, "x", "do this")
