"""What the kernel is set to, on the hosts that people have, and on those that nobody should."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.engine.host import posture
from reconciler.engine.host.check import Seen, Status
from tests.engine.host.trees import (
    DEBIAN_12,
    DEBIAN_13,
    FEDORA,
    UBUNTU_24_04,
    VULNERABILITIES,
    tree,
)


def findings(at: posture.Tree) -> set[str]:
    return {name for name, look in posture.LOOKS.items() if look(at).status is Status.FINDING}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (DEBIAN_12, {"host.ptrace", "host.swap", "host.smt"}),
        (DEBIAN_13, {"host.ptrace", "host.smt"}),
        (UBUNTU_24_04, {"host.swap", "host.smt", "host.core"}),
        (FEDORA, {"host.ptrace", "host.core"}),
    ],
    ids=["debian12", "debian13", "ubuntu2404", "fedora"],
)
def test_what_each_distribution_is_told(
    tmp_path: Path, files: dict[str, str], found: set[str]
) -> None:
    assert findings(tree(tmp_path, files)) == found


def test_a_host_that_is_set_up_well_has_no_finding(tmp_path: Path) -> None:
    well = {
        **DEBIAN_13,
        "proc/sys/kernel/yama/ptrace_scope": "2",
        "sys/devices/system/cpu/smt/active": "0",
    }
    seen = {name: look(tree(tmp_path, well)) for name, look in posture.LOOKS.items()}
    assert {each.status for each in seen.values()} == {Status.OK}


# What is changed on a host that is well, the one finding of it, and a part of its fix.
CHANGES = [
    ({"proc/sys/kernel/yama/ptrace_scope": "0"}, "host.ptrace", "sysctl -w kernel.yama"),
    ({"sys/kernel/mm/ksm/run": "1"}, "host.ksm", "ksm/run"),
    ({f"{VULNERABILITIES}/l1tf": "Vulnerable"}, "host.cpu", "microcode"),
    (
        {f"{VULNERABILITIES}/mds": "Vulnerable; SMT off", "proc/cmdline": "mitigations=off"},
        "host.cpu",
        "take mitigations=off off",
    ),
    ({"proc/sys/kernel/unprivileged_bpf_disabled": "0"}, "host.bpf", "bpf_disabled=1"),
    ({"proc/sys/fs/protected_symlinks": "0"}, "host.links", "fs.protected_symlinks=1"),
    ({"proc/sys/fs/protected_hardlinks": "0"}, "host.links", "fs.protected_hardlinks=1"),
    ({"proc/sys/fs/suid_dumpable": "1"}, "host.suid_dumpable", "suid_dumpable=0"),
    ({"proc/sys/kernel/core_pattern": "|/bin/x"}, "host.core", "core_pattern=core"),
    ({"proc/sys/kernel/perf_event_paranoid": "1"}, "host.addresses", "kptr_restrict=1"),
]


@pytest.mark.parametrize(("change", "name", "fix"), CHANGES)
def test_one_setting_is_one_finding_with_its_fix(
    tmp_path: Path, change: dict[str, str], name: str, fix: str
) -> None:
    well = {
        **DEBIAN_13,
        "proc/sys/kernel/yama/ptrace_scope": "2",
        "sys/devices/system/cpu/smt/active": "0",
    }
    at = tree(tmp_path, {**well, **change})
    assert findings(at) == {name}
    seen = posture.LOOKS[name](at)
    assert seen.fix is not None
    assert fix in seen.fix


def swap(tmp_path: Path, area: str, cgroups: str = "v2", **more: str) -> Seen:
    files = {"proc/swaps": f"Filename Type Size Used Priority\n{area} partition 1 0 -2\n", **more}
    return posture.swap(tree(tmp_path, files, cgroups=cgroups))  # type: ignore[arg-type]


def test_swap_says_what_holds_under_which_cgroups(tmp_path: Path) -> None:
    assert "no VMM may swap" in swap(tmp_path, "/dev/sda5").found
    for kind in ("v1", "hybrid"):
        assert "a guest's memory may be written" in swap(tmp_path, "/dev/sda5", kind).found


def test_encrypted_swap_and_swap_in_memory_are_well(tmp_path: Path) -> None:
    uuid = "sys/block/dm-3/dm/uuid"
    assert swap(tmp_path, "/dev/dm-3", **{uuid: "CRYPT-PLAIN-swap\n"}).status is Status.OK
    assert swap(tmp_path, "/dev/dm-3", **{uuid: "LVM-abc\n"}).status is Status.FINDING
    assert swap(tmp_path, "/dev/zram0").status is Status.OK
    assert swap(tmp_path, "/dev/zram0-not").status is Status.FINDING


def test_roots_vmms_share_no_uid_with_anything(tmp_path: Path) -> None:
    at = tree(tmp_path, DEBIAN_12, uid=0)
    assert posture.ptrace(at).status is Status.NOT_APPLICABLE


def test_a_kernel_without_yama_is_told(tmp_path: Path) -> None:
    assert "no Yama" in posture.ptrace(tree(tmp_path, {})).found


def test_an_empty_tree_breaks_nothing_and_claims_nothing(tmp_path: Path) -> None:
    seen = {name: look(tree(tmp_path, {})) for name, look in posture.LOOKS.items()}
    assert not [name for name, each in seen.items() if each.status is Status.OK]
    assert {n for n, each in seen.items() if each.status is Status.FINDING} == {"host.ptrace"}


HOSTILE = [
    "",
    "\n\n",
    "\0\0\0",
    "9" * 5000,
    "-1",
    "1 1",
    "\udcff\udcfe",
    "|",
    "\x1b[2J",
    "²",
    "x" * (1 << 20),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_whatever_a_file_holds_it_is_a_sentence_of_bounded_length(
    tmp_path: Path, text: str
) -> None:
    at = tree(tmp_path, dict.fromkeys((*DEBIAN_12, "sys/block/dm-0/dm/uuid"), text))
    for look in posture.LOOKS.values():
        assert 0 < len(look(at).found) < 2000


@pytest.mark.parametrize("path", sorted(DEBIAN_12))
def test_a_directory_or_a_loop_in_a_files_place_is_no_setting(tmp_path: Path, path: str) -> None:
    at = tree(tmp_path, {name: text for name, text in DEBIAN_12.items() if name != path})
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).symlink_to(tmp_path / path)
    assert at.text(path) is None
    for look in posture.LOOKS.values():
        assert look(at).found
