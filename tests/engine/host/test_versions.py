"""Floors of versions: which release is below which, and what a distribution's changelog changes."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

import pytest

from reconciler.engine.host import floors, versions
from reconciler.engine.host.check import Status
from reconciler.engine.host.floors import FLOORS, Floor, is_fixed
from reconciler.engine.host.trying import Tries
from reconciler.engine.host.versions import Package, judge, parse_release
from tests.live import quiet

UPDATE = "sudo apt-get install --only-upgrade it"
LEAK = "CVE-2024-21626"


@pytest.mark.parametrize(
    ("said", "release"),
    [
        ("runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev", (1, 1, 5)),
        ("runc version 1.4.0-rc.1\n", (1, 4, -1)),
        ("runc version 1.4.0~rc1\n", (1, 4, -1)),
        ("crun version 1.8.1\ncommit: f8a096be", (1, 8, 1)),
        ("crun version 1.20\n", (1, 20)),
        ("podman version 4.3.1", (4, 3, 1)),
        ("podman version 5.7.0-dev", (5, 7, 0)),
        ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)", (7, 2, 22)),
        ("QEMU emulator version 9.0.0 (qemu-9.0.0-1.fc40)", (9, 0, 0)),
        ("runc version unknown", None),
        ("", None),
        ("v" + "1" * 100000, None),
    ],
)
def test_the_release_that_a_program_says(said: str, release: tuple[int, ...] | None) -> None:
    assert parse_release(said) == release


NOVEMBER = Floor("x", ("CVE-1",), "", ((1, 2, 8), (1, 3, 3), (1, 4, 0)), False, "", "")  # noqa: FBT003


@pytest.mark.parametrize(
    "release", ["1.2.8", "1.2.9", "1.3.3", "1.4.0", "1.4.7", "1.10.0", "2.0.0"]
)
def test_what_is_fixed_on_its_branch(release: str) -> None:
    assert is_fixed(NOVEMBER, parse_release(f"x {release}") or ())


@pytest.mark.parametrize("release", ["1.0.0", "1.1.15", "1.2.7", "1.3.0", "1.3.2", "1.4.0-rc.2"])
def test_what_is_not(release: str) -> None:
    assert not is_fixed(NOVEMBER, parse_release(f"x {release}") or ())


def test_what_never_had_the_hole_is_fixed() -> None:
    (leak,) = [each for each in FLOORS if each.cves == (LEAK,)]
    assert is_fixed(leak, (0, 1, 1))
    assert not is_fixed(leak, (1, 1, 11))


def test_a_changelog_that_names_the_fix_closes_the_hole() -> None:
    said = "runc version 1.1.11"
    named = "\n".join(cve for each in floors.floors_of("runc") for cve in each.cves)
    assert judge("runc", said, Package("runc", named, UPDATE)).status is Status.OK
    without = judge("runc", said, Package("runc", named.replace(LEAK, "CVE-2024-2162"), UPDATE))
    assert without.status is Status.FINDING
    assert LEAK in without.found
    assert "CVE-2025-31133" not in without.found
    assert without.fix is not None
    assert without.fix.startswith(UPDATE)


def test_a_changelog_that_is_not_there_is_said() -> None:
    seen = judge("runc", "runc version 1.1.11", Package("runc", None, UPDATE))
    assert seen.status is Status.FINDING
    assert "its changelog is not here" in seen.found


def test_a_hole_that_box_is_exposed_to_fails_where_no_distribution_may_have_closed_it() -> None:
    said = "QEMU emulator version 8.0.0"
    own = judge("qemu", said, None)
    assert own.status is Status.FAILED
    assert "CVE-2024-3446" in own.found
    assert "box is exposed" in own.found
    assert judge("qemu", said, Package("q", "", UPDATE)).status is Status.FINDING
    # What box is not exposed to is no failure, whoever built it.
    assert judge("runc", "runc version 1.1.5", None).status is Status.FINDING


def test_new_releases_have_nothing_to_say() -> None:
    for component in ("runc", "crun", "qemu", "podman"):
        assert judge(component, f"{component} version 99.0.0", None).status is Status.OK


def test_a_program_that_tells_no_version_is_a_finding() -> None:
    assert judge("crun", "\x1b[31mhello", None).status is Status.FINDING


def test_what_is_not_installed_or_not_used_is_not_applicable() -> None:
    assert versions.look("crun", None, Tries(quiet), used=True).status is Status.NOT_APPLICABLE
    assert (
        versions.look("crun", Path("/bin/true"), Tries(quiet), used=False).status
        is Status.NOT_APPLICABLE
    )


def test_every_row_has_what_a_reader_needs() -> None:
    for each in FLOORS:
        assert each.component in {"runc", "crun", "qemu", "podman"}
        assert all(re.fullmatch(r"CVE-20\d\d-\d{4,7}", cve) for cve in each.cves)
        assert each.cves
        assert each.what
        assert each.why
        assert each.source.startswith("https://")
        assert each.fixed == tuple(sorted(each.fixed))
        # Fixed on each branch that is told, and not right before it.
        for release in each.fixed:
            assert is_fixed(each, release)
            assert not is_fixed(each, (*release[:-1], release[-1] - 1))


@pytest.mark.parametrize(
    "data",
    [b"", b"no gzip", gzip.compress(b"x" * 100)[:-9], gzip.compress(b"\xff\xfe")[:12]],
    ids=["empty", "plain", "cut", "short"],
)
def test_a_broken_changelog_is_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "changelog.Debian.gz").write_bytes(data)
    assert not versions.debian_changelog(tmp_path)


def test_a_changelog_that_unpacks_to_no_end_is_cut(tmp_path: Path) -> None:
    (tmp_path / "changelog.gz").write_bytes(gzip.compress(bytes(64 << 20)))
    assert len(versions.debian_changelog(tmp_path) or "") == 8 << 20


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="no Debian")
def test_the_package_of_a_real_program_and_of_none(tmp_path: Path) -> None:
    found = versions.package_of(Path("/usr/bin/dpkg-query"), Tries(quiet))
    assert found is not None
    assert found.name == "dpkg"
    mine = tmp_path / "program"
    mine.write_text("")
    assert versions.package_of(mine, Tries(quiet)) is None
