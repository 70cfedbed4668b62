"""Small /proc and /sys trees of hosts, as their distributions set them.

Sources: Debian's kernel (its patch "yama: Disable by default"), Ubuntu's /etc/sysctl.d/10-*.conf
and apport, Fedora's elfutils-default-yama-scope and systemd's 50-coredump.conf; the processors'
lines are those of Documentation/admin-guide/hw-vuln.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from reconciler.engine.host.posture import Tree

VULNERABILITIES = "sys/devices/system/cpu/vulnerabilities"
_SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
_COMMON = {
    "proc/sys/kernel/unprivileged_bpf_disabled": "2\n",
    "proc/sys/kernel/perf_event_paranoid": "2\n",
    "proc/sys/fs/protected_symlinks": "1\n",
    "proc/sys/fs/protected_hardlinks": "1\n",
    "proc/sys/fs/suid_dumpable": "0\n",
    "proc/cmdline": "BOOT_IMAGE=/boot/vmlinuz root=/dev/vda1 ro quiet\n",
    "proc/swaps": _SWAPS,
    "sys/kernel/mm/ksm/run": "0\n",
    "sys/devices/system/cpu/smt/active": "1\n",
    f"{VULNERABILITIES}/meltdown": "Mitigation: PTI\n",
    f"{VULNERABILITIES}/mds": "Mitigation: Clear CPU buffers; SMT vulnerable\n",
    f"{VULNERABILITIES}/spectre_v1": "Mitigation: usercopy/swapgs barriers\n",
}
DEBIAN_12 = {
    **_COMMON,
    "proc/sys/kernel/yama/ptrace_scope": "0\n",
    "proc/sys/kernel/core_pattern": "core\n",
    "proc/sys/kernel/kptr_restrict": "0\n",
    "proc/sys/kernel/perf_event_paranoid": "3\n",
    "proc/swaps": _SWAPS + "/dev/sda5                               partition\t998396\t\t0\t\t-2\n",
}
DEBIAN_13 = {**DEBIAN_12, "proc/swaps": _SWAPS}
UBUNTU_24_04 = {
    **_COMMON,
    "proc/sys/kernel/yama/ptrace_scope": "1\n",
    "proc/sys/kernel/core_pattern": "|/usr/share/apport/apport -p%p -s%s -c%c -d%d -P%P -- %E\n",
    "proc/sys/kernel/kptr_restrict": "1\n",
    "proc/sys/kernel/perf_event_paranoid": "4\n",
    "proc/sys/fs/suid_dumpable": "2\n",
    "proc/swaps": _SWAPS + "/swap.img                               file\t\t4194300\t\t0\t\t-2\n",
}
FEDORA = {
    **_COMMON,
    "proc/sys/kernel/yama/ptrace_scope": "0\n",
    "proc/sys/kernel/core_pattern": "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h\n",
    "proc/sys/kernel/kptr_restrict": "0\n",
    "proc/sys/fs/suid_dumpable": "2\n",
    "proc/swaps": _SWAPS
    + "/dev/zram0                              partition\t8388604\t\t0\t\t100\n",
    "sys/devices/system/cpu/smt/active": "0\n",
}


def tree(
    root: Path,
    files: dict[str, str],
    *,
    uid: int = 1000,
    cgroups: Literal["none", "v1", "v2", "hybrid"] = "v2",
) -> Tree:
    """Write the files below `root`, which holds no others."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode(errors="surrogateescape"))
    return Tree(root, uid, cgroups)
