from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.controller.brake import Absence, Doubt, rule, token_for


def absence(gone: int, total: int) -> Absence:
    names = [f"s{number}" for number in range(total)]
    return Absence("/d", frozenset(names), frozenset(names[:gone]))


@pytest.mark.parametrize(("gone", "total"), [(1, 1), (1, 2), (2, 3), (2, 10), (3, 10), (30, 100)])
def test_few_absences_are_orders(gone: int, total: int) -> None:
    ruling = rule(absence(gone, total))
    assert ruling.destroy == absence(gone, total).absent
    assert not ruling.held


@pytest.mark.parametrize(("gone", "total"), [(2, 2), (3, 3), (3, 5), (4, 10), (31, 100)])
def test_many_at_once_are_held(gone: int, total: int) -> None:
    ruling = rule(absence(gone, total))
    assert not ruling.destroy
    assert ruling.held == absence(gone, total).absent
    assert ruling.token
    assert str(gone) in ruling.message


def test_the_token_confirms_exactly_these() -> None:
    four = absence(4, 10)
    token = rule(four).token
    assert rule(replace(four, confirmed=token)).destroy == four.absent
    assert rule(replace(absence(5, 10), confirmed=token)).held == absence(5, 10).absent
    assert rule(replace(four, folder="/e", confirmed=token)).held == four.absent


def test_held_stays_held_when_the_share_falls() -> None:
    four = absence(4, 100)
    ruling = rule(replace(four, held=four.absent))
    assert ruling.held == four.absent
    assert ruling.token == token_for("/d", four.absent)


def test_held_ends_when_the_file_is_back() -> None:
    one = absence(1, 10)
    assert rule(replace(one, held=frozenset({"s5"}))).destroy == one.absent


def test_what_was_ordered_once_stays_ordered() -> None:
    """A destruction that takes several tries is not called back by later absences."""
    four = absence(4, 10)
    ruling = rule(replace(four, doomed=frozenset({"s0", "s1"})))
    assert ruling.destroy == four.absent
    more = absence(8, 10)
    ruling = rule(replace(more, doomed=frozenset({"s0", "s1"})))
    assert ruling.destroy == {"s0", "s1"}
    assert ruling.held == more.absent - {"s0", "s1"}


def test_a_passing_doubt_waits_and_no_token_helps() -> None:
    one = absence(1, 5)
    doubt = Doubt("SourceMissing", "not mounted", passing=True)
    token = token_for("/d", one.absent)
    ruling = rule(replace(one, doubt=doubt, confirmed=token, doomed=one.absent))
    assert ruling.waiting == one.absent
    assert not ruling.destroy
    assert not ruling.held


def test_another_doubt_holds_even_one() -> None:
    one = absence(1, 5)
    doubt = Doubt("SourceReplaced", "another folder", passing=False)
    ruling = rule(replace(one, doubt=doubt))
    assert ruling.held == one.absent
    assert rule(replace(one, doubt=doubt, confirmed=ruling.token)).destroy == one.absent


def test_nothing_is_absent() -> None:
    ruling = rule(absence(0, 3))
    assert not ruling.destroy | ruling.held | ruling.waiting
    assert not ruling.token
