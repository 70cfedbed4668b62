from __future__ import annotations

import re
from pathlib import Path

import pytest

from reconciler.linux import subids
from reconciler.linux.subids import BrokenTable, HostRange, OwnedRange, SubordinateRanges


def tables(
    tmp_path: Path, subuid: str, subgid: str | None = None, passwd: str = "", group: str = ""
) -> subids.Tables:
    (tmp_path / "subuid").write_text(subuid)
    (tmp_path / "subgid").write_text(subuid if subgid is None else subgid)
    (tmp_path / "passwd").write_text(passwd)
    (tmp_path / "group").write_text(group)
    return subids.read_tables(tmp_path)


def test_names_numbers_comments_and_empty_lines(tmp_path: Path) -> None:
    found = tables(tmp_path, "# ours\n\nann:100000:65536\n1001:165536:65536\n")
    assert found.subuids == (
        OwnedRange("ann", HostRange(100_000, 65_536)),
        OwnedRange("1001", HostRange(165_536, 65_536)),
    )
    expected = (HostRange(165_536, 65_536),)
    assert subids.ranges_of(found, "bob", 1001) == SubordinateRanges(expected, expected)
    assert subids.ranges_of(found, "carl", 1002) == SubordinateRanges((), ())


def test_tables_that_do_not_exist(tmp_path: Path) -> None:
    found = subids.read_tables(tmp_path)
    assert found == subids.Tables((), (), frozenset(), frozenset())


@pytest.mark.parametrize(
    "line",
    [
        "ann",
        "ann:1",
        "ann:1:2:3",
        ":1:2",
        "ann:x:2",
        "ann:-1:2",
        "ann:1:+2",
        "ann:1:\uff12",
        "ann:4294967295:1",
        "ann:4294901760:65536",
        "ann:1:99999999999",
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(BrokenTable, match=re.escape(str(tmp_path / "subuid") + ":2:")):
        tables(tmp_path, f"ok:1:1\n{line}\n")


def test_the_last_possible_id_can_be_had(tmp_path: Path) -> None:
    found = tables(tmp_path, "ann:4294901759:65536\n")
    assert found.subuids[0].range.end - 1 == 4_294_967_294


def test_own_ranges_that_overlap_are_one(tmp_path: Path) -> None:
    found = tables(tmp_path, "a:200000:100\na:100000:65536\na:120000:65536\na:5:0\na:200050:100\n")
    assert subids.ranges_of(found, "a", 1).uids == (
        HostRange(100_000, 85_536),
        HostRange(200_000, 150),
    )


def test_own_ranges_side_by_side_stay_two(tmp_path: Path) -> None:
    found = tables(tmp_path, "a:100000:65536\na:165536:65536\n")
    assert len(subids.ranges_of(found, "a", 1).uids) == 2


def test_account_ids_of_a_strange_passwd() -> None:
    data = b"root:x:0:0::/:/bin/sh\n+nis::::::\nbroken\nann:x:1000:1000::/:/bin/sh\n+\n\xff:x:7:7\n"
    assert subids.parse_account_ids(data) == {0, 1000, 7}


def test_usermod_adds_above_everything_in_use(tmp_path: Path) -> None:
    found = tables(
        tmp_path,
        "a:100000:65536\nb:600000:65536\n",
        "a:100000:65536\nb:700000:65536\n",
        "x:x:900000:1::/:/\nnobody:x:65534:1::/:/\n",
    )
    line = subids.usermod_line(found, "a")
    # 900,001 rounded up to a multiple of 65,536.
    assert line == "usermod --add-subuids 917504-983039 --add-subgids 917504-983039 a"


def test_usermod_on_a_fresh_host_stays_clear_of_what_distributions_give(tmp_path: Path) -> None:
    line = subids.usermod_line(tables(tmp_path, "a:100000:65536\n"), "a")
    assert line == "usermod --add-subuids 524288-589823 --add-subgids 524288-589823 a"


def test_usermod_adds_many_slots_at_once(tmp_path: Path) -> None:
    command = subids.usermod_command(tables(tmp_path, "a:100000:65536\n"), "a", 16)
    added = "524288-1572863"
    assert command == ("usermod", "--add-subuids", added, "--add-subgids", added, "a")


def test_usermod_never_counts_beyond_32_bits(tmp_path: Path) -> None:
    found = tables(tmp_path, "a:4294901000:500\n")
    assert "no IDs are left" in subids.usermod_line(found, "a")
