"""What a policy lets a VMM touch, in a sentence or two for each group of promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from reconciler.confinement.policy import MIB, BindMount, IdRange, Policy
from reconciler.engine.security_report import VmReport
from reconciler.surfaces.security_report.document import profile_digest
from reconciler.surfaces.security_report.lines import path_end

_DIGEST_SHOWN = 16
_OWN_PARTS = {"/kernel": "kernel", "/initrd": "RAM disk", "/root.img": "root image", "/env": "env"}
_FIRMWARE = PurePosixPath("/firmware")
_MOST_SHOWN = 4


def summaries(vm: VmReport) -> dict[str, list[str]]:
    """By group of promises, what the VMM of `vm` was, or would be, given: a paragraph or more."""
    policy = vm.policy
    if policy is None:
        return {}
    debugger = f"no_new_privs {'on' if policy.no_new_privileges else 'OFF'}; no debugger"
    return {
        "identity": [_identity(policy)],
        "privileges": [f"capabilities: {', '.join(policy.capabilities) or 'none'}; {debugger}"],
        "seccomp": [_seccomp(policy)],
        "namespaces": [f"of its own: {' '.join(policy.namespaces)}"],
        "network": ["a loopback of its own; no interface of the host's"],
        "limits": [_limits(policy)],
        "files": list(_files(vm, policy)),
    }


def _identity(policy: Policy) -> str:
    uids, gids = map(_ranges, (policy.uid_map, policy.gid_map))
    same = uids == gids
    ids = f"host UIDs and GIDs {uids}" if same else f"host UIDs {uids}, GIDs {gids}"
    return f"{ids}; no supplementary group"


def _ranges(ranges: tuple[IdRange, ...]) -> str:
    return ", ".join(
        f"{each.host}" if each.size == 1 else f"{each.host}-{each.host + each.size - 1}"
        for each in ranges
    )


def _seccomp(policy: Policy) -> str:
    digest = profile_digest(policy)
    found = f"SHA-256 {digest[:_DIGEST_SHOWN]}…" if digest else "which is not installed any more"
    return f"a filter on every thread: profile {policy.seccomp_profile}, {found}"


def _limits(policy: Policy) -> str:
    hard = {each.name: each.hard for each in policy.rlimits}
    parts = [
        f"{policy.pids_limit} processes and threads",
        f"{size(policy.memory_limit_bytes)} with swap counted",
        *(["no core file"] if hard.get("RLIMIT_CORE") == 0 else []),
        *([f"files of {size(hard['RLIMIT_FSIZE'])}"] if "RLIMIT_FSIZE" in hard else []),
        *([f"{hard['RLIMIT_NOFILE']} open files"] if "RLIMIT_NOFILE" in hard else []),
    ]
    return ", ".join(parts)


def _files(vm: VmReport, policy: Policy) -> Iterator[str]:
    if vm.data:
        yield f"/data: a disk of {size(vm.data[1])}, {path_end(vm.data[0])}"
    else:
        yield "/data: none"
    declared = {each.host for each in vm.spec.mounts}
    parts = {each: None if each.source in declared else _part(each) for each in policy.binds}
    folders = [each for each, part in parts.items() if part is None]
    shown = [
        f"{path_end(b.source)} at {path_end(b.target)}, {_mode(b)}" for b in folders[:_MOST_SHOWN]
    ]
    more = len(folders) - len(shown)
    yield "host mounts: " + (", ".join(shown) or "none") + (f" and {more} more" if more else "")
    own = [part for part in parts.values() if part]
    images = [part for part in own if part in _OWN_PARTS.values()]
    yield f"read-only: {', '.join([*images, f'{len(own) - len(images)} files of QEMU'])}"
    yield "devices: " + (", ".join(policy.devices) or "none")
    data = str(vm.data[0]) if vm.data else ""
    given = [path_end(each, 36) for each in policy.open_files if each != data]
    yield f"given open: {', '.join(given[:_MOST_SHOWN]) or 'nothing'}, and sockets to box"


def size(count: int) -> str:
    """Bytes as a person says them, in whole MiB or GiB."""
    mib = count // MIB
    return f"{mib // 1024} GiB" if mib >= 1024 and mib % 1024 == 0 else f"{mib} MiB"


def _mode(bind: BindMount) -> str:
    return "read-only" if bind.read_only else "WRITABLE"


def _part(bind: BindMount) -> str | None:
    """Which of the VMM's own read-only parts it is; None for a file or folder of the host's."""
    if not bind.read_only:
        return None
    target = PurePosixPath(bind.target)
    if bind.target in _OWN_PARTS:
        return _OWN_PARTS[bind.target]
    # A program, its libraries and plugins lie where they do on the host.
    if bind.source == bind.target or _FIRMWARE in target.parents:
        return "QEMU"
    return None
