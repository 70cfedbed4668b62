"""IDs that two lines give away, found and named by their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.engine.host import ranges
from reconciler.engine.host.check import Status
from reconciler.linux.subids import BrokenTable


def tables(etc: Path, **files: str) -> Path:
    for name, text in files.items():
        (etc / name).write_text(text)
    return etc


def told(etc: Path) -> list[str]:
    return [f"{one} | {other}".replace(f"{etc}/", "") for one, other in ranges.overlaps(etc)]


def test_ranges_side_by_side_are_well(tmp_path: Path) -> None:
    etc = tables(
        tmp_path,
        subuid="# nobody's\n\na:100000:65536\nb:165536:65536\n",
        subgid="a:100000:65536\nb:165536:65536\n",
        passwd="root:x:0:0::/root:/bin/sh\na:x:1000:1000::/a:/bin/sh\n+::::::\n",
        group="root:x:0:\nnogroup:x:65534:\n",
    )
    assert told(etc) == []
    assert ranges.look(etc).status is Status.OK


def test_no_tables_at_all_are_well(tmp_path: Path) -> None:
    assert ranges.look(tmp_path).status is Status.OK


def test_two_users_with_one_id_are_named_by_their_lines(tmp_path: Path) -> None:
    etc = tables(tmp_path, subuid="a:100000:65536\n# between\nb:165535:10\nc:300000:1\n")
    assert told(etc) == ["subuid:1 (a: 100000-165535) | subuid:3 (b: 165535-165544)"]
    seen = ranges.look(etc)
    assert seen.status is Status.FINDING
    assert seen.fix is not None
    assert "subuid, line 3" in seen.fix


def test_a_range_within_a_range_and_one_behind_it(tmp_path: Path) -> None:
    etc = tables(tmp_path, subgid="a:100000:1000000\nb:200000:10\nc:900000:10\na:950000:10\n")
    assert told(etc) == [
        "subgid:1 (a: 100000-1099999) | subgid:2 (b: 200000-200009)",
        "subgid:1 (a: 100000-1099999) | subgid:3 (c: 900000-900009)",
    ]


def test_a_users_own_lines_may_overlap(tmp_path: Path) -> None:
    assert told(tables(tmp_path, subuid="a:100000:65536\na:100000:65536\na:150000:65536\n")) == []


@pytest.mark.parametrize("name", ["b", "a"])
def test_an_account_within_a_range_is_found_also_its_owners(tmp_path: Path, name: str) -> None:
    etc = tables(
        tmp_path,
        subuid="a:100000:65536\n",
        passwd=f"root:x:0:0::/:/bin/sh\n{name}:x:100000:100::/:/bin/sh\n",
    )
    assert told(etc) == [f"subuid:1 (a: 100000-165535) | passwd:2 ({name}: 100000)"]


def test_groups_count_for_subgid_and_not_for_subuid(tmp_path: Path) -> None:
    etc = tables(tmp_path, subuid="a:100000:65536\n", group="g:x:100001:\n")
    assert told(etc) == []
    tables(tmp_path, subgid="a:100000:65536\n")
    assert told(etc) == ["subgid:1 (a: 100000-165535) | group:1 (g: 100001)"]


def test_a_line_that_says_nothing_is_refused_by_its_number(tmp_path: Path) -> None:
    with pytest.raises(BrokenTable, match="subuid:2"):
        ranges.look(tables(tmp_path, subuid="a:100000:65536\nb:1\n"))


def test_many_lines_take_no_longer_than_their_number(tmp_path: Path) -> None:
    lines = "".join(f"user{n}:100000:4000000000\n" for n in range(20_000))
    assert len(ranges.overlaps(tables(tmp_path, subuid=lines))) == 19_999
    assert len(ranges.look(tmp_path).found) < 1000


def test_a_table_without_an_end_is_not_read_whole(tmp_path: Path) -> None:
    (tmp_path / "subuid").symlink_to("/dev/zero")
    with pytest.raises(BrokenTable, match="larger"):
        ranges.look(tmp_path)
