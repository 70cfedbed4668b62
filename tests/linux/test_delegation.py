from __future__ import annotations

import json
import secrets
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.linux import cgroups, delegation
from reconciler.linux.cgroups import Hierarchy, Layout
from tests.linux import ordinary_user
from tests.linux.ordinary_user import OrdinaryUser


@pytest.fixture(scope="module")
def user() -> Iterator[OrdinaryUser]:
    with ordinary_user.made() as each:
        yield each


def test_a_host_without_the_controllers(tmp_path: Path) -> None:
    layout = Layout((Hierarchy(1, frozenset({"cpu", "pids"}), str(tmp_path), "/"),))
    problem = delegation.probe_delegation("/box", layout)
    assert problem == "the kernel has no cgroup controller memory"


@pytest.mark.root
def test_root_needs_nothing_and_leaves_nothing() -> None:
    parent = f"/box-test-{secrets.token_hex(4)}"
    assert delegation.probe_delegation(parent) is None
    assert not any(each.exists() for each in cgroups.detect().directories(parent))


@pytest.mark.root
def test_the_user_can_use_what_root_made(user: OrdinaryUser) -> None:
    out = user.run(
        """
        import json, os
        from reconciler.linux import cgroups, delegation
        parent = delegation.parent_of(os.getuid())
        left = [str(p) for d in cgroups.detect().directories(parent) for p in d.glob("box-*")]
        print(json.dumps([
            delegation.delegation_of(os.getuid()), delegation.probe_delegation(parent), left,
            delegation.probe_delegation("/"), delegation.probe_delegation("/box-nothing"),
        ]))
        """
    )
    found, problem, left, in_root, in_nothing = json.loads(out)
    assert found == delegation.parent_of(user.uid)
    assert problem is None
    assert left == []
    assert "no cgroup can be made in" in in_root
    assert "does not exist" in in_nothing


@pytest.mark.root
def test_the_user_cannot_raise_the_limits_of_the_delegated_cgroup(user: OrdinaryUser) -> None:
    pids = cgroups.detect().of_controller("pids")
    assert pids is not None
    limit = pids.directory(delegation.parent_of(user.uid)) / "pids.max"
    out = user.run(
        f"""
        try:
            open({str(limit)!r}, "w").write("max")
        except PermissionError:
            print("refused")
        """
    )
    assert out == "refused\n"


@pytest.mark.root
def test_making_it_again_changes_nothing(user: OrdinaryUser) -> None:
    parent = delegation.parent_of(user.uid)
    delegation.make_delegation(parent, user.uid, user.gid)
    for directory in cgroups.detect().directories(parent):
        assert (directory.stat().st_uid, directory.stat().st_gid) == (user.uid, user.gid)
        assert (directory / "cgroup.procs").stat().st_uid == user.uid


@pytest.mark.root
def test_one_hierarchy_missing_is_a_problem(user: OrdinaryUser) -> None:
    """The probe tries all of them: take one away and it must say so."""
    parent = delegation.parent_of(user.uid)
    directory = cgroups.detect().directories(parent)[-1]
    directory.rmdir()
    try:
        out = user.run(
            f"""
            import os
            from reconciler.linux import delegation
            print(delegation.probe_delegation({parent!r}), delegation.delegation_of(os.getuid()))
            """
        )
        assert out == f"the cgroup {directory} does not exist None\n"
    finally:
        delegation.make_delegation(parent, user.uid, user.gid)


def test_the_line_to_paste_names_this_box_and_not_one_on_roots_path() -> None:
    sudo, program, *rest = shlex.split(delegation.setup_line(1000))
    assert (sudo, rest) == ("sudo", ["setup", "--user", "1000"])
    done = subprocess.run(
        [program, "--version"], cwd="/", env={}, capture_output=True, timeout=60, check=False
    )
    assert done.stdout.startswith(b"box ")
