"""What the host's kernel is set to, and what that means for untrusted guests.

Pure over a tree that holds proc/ and sys/ as a running host does; a setting that is not there, or
is nothing that a kernel writes, is not applicable.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from reconciler.engine.host.check import Seen, finding, not_applicable, ok

_MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Tree:
    """Where proc/ and sys/ are; /, but for tests. `uid` is whose sandboxes these are."""

    root: Path
    uid: int
    cgroups: Literal["none", "v1", "v2", "hybrid"]

    def text(self, path: str) -> str | None:
        """A file's text, cut and stripped; None when it is not there or cannot be read."""
        try:
            with (self.root / path).open("rb") as file:
                return file.read(_MOST_BYTES).decode(errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """A setting that is one small number."""
        text = self.text(path)
        return int(text) if text and re.fullmatch(r"-?[0-9]{1,4}", text) else None


def ptrace(tree: Tree) -> Seen:
    """Whether a process may trace others of its UID."""
    if tree.uid == 0:
        return not_applicable("root's sandboxes are strict: no VMM has the UID of another process")
    scope = tree.number("proc/sys/kernel/yama/ptrace_scope")
    if scope is not None and scope > 0:
        return ok(f"kernel.yama.ptrace_scope is {scope}")
    means = "what escapes from a standard sandbox may read the memory of your other programs"
    if scope is None:
        return finding(f"this kernel has no Yama: {means}", "isolation: strict in the Boxfile")
    return finding(
        f"kernel.yama.ptrace_scope is 0: {means}", "sudo sysctl -w kernel.yama.ptrace_scope=1"
    )


def swap(tree: Tree) -> Seen:
    """Whether memory may be written to a disk, as it is."""
    text = tree.text("proc/swaps")
    if text is None:
        return not_applicable("/proc/swaps cannot be read")
    areas = [line.split()[0] for line in text.splitlines()[1:] if line.strip()]
    plain = [each for each in areas if not _is_in_memory(each) and not _is_encrypted(tree, each)]
    if not plain:
        return ok("no swap" if not areas else f"swap in memory or encrypted: {' '.join(areas)}")
    named = " ".join(each[:80] for each in plain[:4])
    # memory.swap.max is a limit on swap alone; version 1 only limits memory and swap together.
    means = (
        "no VMM may swap (memory.swap.max), but box itself, with the tokens of its guests, may"
        if tree.cgroups == "v2"
        else "with version 1 of cgroups a guest's memory may be written there, within its limit"
    )
    return finding(
        f"swap on a disk that is not known to be encrypted ({named}): {means}",
        "encrypt it (crypttab(5), option swap), or go without: sudo swapoff -a",
    )


def _is_in_memory(area: str) -> bool:
    return bool(re.fullmatch(r"/dev/zram[0-9]+", area))


def _is_encrypted(tree: Tree, area: str) -> bool:
    match = re.fullmatch(r"/dev/(dm-[0-9]+)", area)
    if match is None:
        return False
    return (tree.text(f"sys/block/{match[1]}/dm/uuid") or "").startswith("CRYPT-")


def ksm(tree: Tree) -> Seen:
    """Whether equal pages of different guests are merged."""
    run = tree.number("sys/kernel/mm/ksm/run")
    if run is None:
        return not_applicable("this kernel merges no pages")
    if run != 1:
        return ok("equal pages are not merged")
    return finding(
        "KSM is on. box's VMMs offer it no memory, but under a unit with MemoryKSM= theirs is "
        "merged too: how long a write takes tells a guest what another one's memory holds",
        "echo 2 | sudo tee /sys/kernel/mm/ksm/run",
    )


def _vulnerabilities(tree: Tree) -> dict[str, str]:
    directory = "sys/devices/system/cpu/vulnerabilities"
    try:
        names = sorted(path.name for path in (tree.root / directory).iterdir())[:64]
    except OSError:
        return {}
    return {name: tree.text(f"{directory}/{name}") or "" for name in names}


def smt(tree: Tree) -> Seen:
    """Whether two guests may share a core that leaks from one thread to the other."""
    active = tree.number("sys/devices/system/cpu/smt/active")
    if active is None:
        return not_applicable("the kernel does not tell whether threads share a core")
    if active != 1:
        return ok("no threads that share a core")
    leaks = [name for name, text in _vulnerabilities(tree).items() if "SMT vulnerable" in text]
    if not leaks:
        return ok("threads share cores; the kernel knows of no leak between them")
    return finding(
        f"threads share cores that leak ({', '.join(leaks)}): a guest may read what another guest, "
        "or the host, does on the same core",
        "echo off | sudo tee /sys/devices/system/cpu/smt/control",
    )


def cpu(tree: Tree) -> Seen:
    """Holes of the processor that the kernel does nothing about."""
    known = _vulnerabilities(tree)
    if not known:
        return not_applicable("the kernel does not tell about the processor's holes")
    bad = [name for name, text in known.items() if text.startswith("Vulnerable")]
    if not bad:
        return ok(f"{len(known)} holes of processors: each mitigated, or not this one's")
    words = (tree.text("proc/cmdline") or "").split()
    fix = "install the newest kernel and microcode of your distribution, and boot it"
    if "mitigations=off" in words:
        fix = "take mitigations=off off the kernel's command line, and boot again"
    found = f"not mitigated: {', '.join(bad)}. A guest may read memory that is not its own by them"
    return finding(found, fix)


def core(tree: Tree) -> Seen:
    """Where a crashed VMM's memory goes."""
    pattern = tree.text("proc/sys/kernel/core_pattern")
    if pattern is None:
        return not_applicable("kernel.core_pattern cannot be read")
    if not pattern.startswith("|"):
        return ok("a crashed VMM leaves no core: its limit is 0")
    program = pattern[1:].split()[:1]
    return finding(
        f"a crashed VMM is piped to {program[0][:80] if program else 'a program'}, whatever its "
        "limit on cores is; the guest's memory is marked to be left out, which whoever took over "
        "the VMM can undo",
        "sudo sysctl -w kernel.core_pattern=core",
    )


def bpf(tree: Tree) -> Seen:
    """Whether everybody may load programs into the kernel."""
    value = tree.number("proc/sys/kernel/unprivileged_bpf_disabled")
    if value is None:
        return not_applicable("this kernel has no bpf(2), or none for everybody")
    if value != 0:
        return ok(f"kernel.unprivileged_bpf_disabled is {value}")
    return finding(
        "every user may load BPF programs: no VMM (its filter refuses), but what got out of one",
        "sudo sysctl -w kernel.unprivileged_bpf_disabled=1",
    )


def links(tree: Tree) -> Seen:
    """Whether links of others in shared directories are followed."""
    names = ("protected_symlinks", "protected_hardlinks")
    values = {name: tree.number(f"proc/sys/fs/{name}") for name in names}
    off = [f"fs.{name}" for name, value in values.items() if value == 0]
    if not off and None in values.values():
        return not_applicable("the kernel does not tell whether links of others are followed")
    if not off:
        return ok("links of others in shared directories are not followed")
    return finding(
        f"{' and '.join(off)} off: another user's link in /tmp can lead a program of yours astray",
        f"sudo sysctl -w {' '.join(f'{name}=1' for name in off)}",
    )


def suid_dumpable(tree: Tree) -> Seen:
    """Whether programs that change their UID leave readable cores."""
    value = tree.number("proc/sys/fs/suid_dumpable")
    if value is None:
        return not_applicable("fs.suid_dumpable cannot be read")
    if value != 1:
        return ok(f"fs.suid_dumpable is {value}")
    return finding(
        "fs.suid_dumpable is 1: newuidmap and its like can be made to leave their memory in a file",
        "sudo sysctl -w fs.suid_dumpable=0",
    )


def kernel_addresses(tree: Tree) -> Seen:
    """Whether the kernel tells everybody where it is (kernel/ksyms_common.c)."""
    restrict = tree.number("proc/sys/kernel/kptr_restrict")
    paranoid = tree.number("proc/sys/kernel/perf_event_paranoid")
    if restrict is None:
        return not_applicable("kernel.kptr_restrict cannot be read")
    if restrict > 0 or paranoid is None or paranoid > 1:
        return ok("kernel addresses are shown to the privileged alone")
    return finding(
        "the kernel shows its addresses to everybody (/proc/kallsyms), a VMM too: half the work of "
        "whoever attacks it",
        "sudo sysctl -w kernel.kptr_restrict=1",
    )


LOOKS: dict[str, Callable[[Tree], Seen]] = {
    "host.ptrace": ptrace,
    "host.swap": swap,
    "host.ksm": ksm,
    "host.smt": smt,
    "host.cpu": cpu,
    "host.core": core,
    "host.bpf": bpf,
    "host.links": links,
    "host.suid_dumpable": suid_dumpable,
    "host.addresses": kernel_addresses,
}
