"""The security report as JSON: schemas/security-report.schema.json describes it."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import Any

from reconciler.confinement.policy import IdRange, Policy
from reconciler.engine import accelerator
from reconciler.engine.security_report import ROLES, Checked, SecurityReport, VmReport
from reconciler.errors import Missing
from reconciler.linux import seccomp

VERSION = 1
CAVEAT = (
    "This is what was so when it was read. It does not vouch for later: a VMM that is broken into "
    "afterwards can do what its confinement still allows until it is read again."
)


def document(report: SecurityReport) -> dict[str, Any]:
    """The whole report as plain values."""
    return {
        "version": VERSION,
        "sandbox": report.sandbox,
        "read_at": report.read_at,
        "verdict": verdict_word(report),
        "caveat": CAVEAT,
        "lost_vms": list(report.lost),
        "vms": [_vm(each) for each in report.vms],
    }


def verdict_word(report: SecurityReport) -> str:
    """The worst verdict of all VMs; "not_read" when no VMM runs."""
    return str(report.verdict or "not_read")


def _vm(vm: VmReport) -> dict[str, Any]:
    return {
        "vm": vm.vm,
        "role": ROLES[vm.kind],
        "state": vm.state,
        "pid": vm.who.pid if vm.who else None,
        "start_time_ticks": vm.who.start_time_ticks if vm.who else None,
        "boot_id": vm.who.boot_id if vm.who else None,
        "started_at": vm.started_at or None,
        "incarnation": vm.incarnation or None,
        "backend": vm.spec.backend,
        "isolation": vm.spec.isolation,
        "escape_is_your_account": vm.spec.isolation == "standard",
        "accelerator": vm.accelerator or None,
        "emulated": (vm.accelerator == accelerator.EMULATION) if vm.accelerator else None,
        "emulated_because": vm.emulated_because or None,
        "boundary": _boundary(vm),
        "frozen": asdict(vm.frozen) if vm.frozen else None,
        "configuration": configuration(vm),
        "facts": [_fact(each) for each in vm.facts],
    }


def _boundary(vm: VmReport) -> dict[str, Any] | None:
    known = vm.boundary
    if known is None:
        return None
    return {
        "verdict": known.verdict,
        "have": known.have,
        "fingerprint": known.fingerprint,
        "guest": asdict(known.guest) if known.guest else None,
        "host": asdict(known.host) if known.host else None,
        "proven_at": known.proven_at or None,
    }


def _fact(fact: Checked) -> dict[str, Any]:
    return {
        "id": fact.promise.id,
        "group": fact.promise.group,
        "sentence": fact.promise.sentence,
        "read": fact.promise.read,
        "want": fact.want,
        "have": fact.have,
        "verdict": fact.verdict,
    }


def configuration(vm: VmReport) -> dict[str, Any] | None:
    """What the VMM was, or would be, launched under; None when that cannot be told."""
    policy = vm.policy
    if policy is None:
        return None
    return {
        "source": vm.source,
        **_rights(policy),
        **_limits(policy),
        "network": {"declared": vm.spec.network, "interfaces": ["lo"]},
        "data": {"kind": "disk", "path": str(vm.data[0]), "bytes": vm.data[1]} if vm.data else None,
        "mounts": [asdict(each) for each in policy.binds],
        "kernel_mounts": [{"target": m.target, "fstype": m.fstype} for m in policy.kernel_mounts],
        "masked_paths": list(policy.masked_paths),
        "read_only_paths": list(policy.read_only_paths),
        "read_only_root": policy.read_only_root,
        "devices": list(policy.devices),
        "open_files": list(policy.open_files),
        # Names alone: a value may be a secret one day.
        "environment": [name for name, _ in policy.environment],
    }


def _rights(policy: Policy) -> dict[str, Any]:
    return {
        "uid_map": [asdict(each) for each in policy.uid_map],
        "gid_map": [asdict(each) for each in policy.gid_map],
        "uid": host_id(policy.uid_map, policy.process_uid),
        "gid": host_id(policy.gid_map, policy.process_gid),
        "capabilities": list(policy.capabilities),
        "no_new_privs": policy.no_new_privileges,
        "seccomp": {"profile": policy.seccomp_profile, "sha256": profile_digest(policy)},
        "namespaces": list(policy.namespaces),
        "cgroup": policy.cgroup,
    }


def _limits(policy: Policy) -> dict[str, Any]:
    return {
        "limits": {
            "pids": policy.pids_limit,
            "memory_bytes": policy.memory_limit_bytes,
            "memory_and_swap_bytes": policy.memory_limit_bytes,
            "rlimits": [asdict(each) for each in policy.rlimits],
            "oom_score_adj": policy.oom_score_adj,
        }
    }


def host_id(ranges: tuple[IdRange, ...], inside: int) -> int | None:
    """The host's ID for one inside the user namespace; None when the map does not hold it."""
    for each in ranges:
        if each.inside <= inside < each.inside + each.size:
            return each.host + inside - each.inside
    return None


def profile_digest(policy: Policy) -> str | None:
    """SHA-256 of the profile's file as it is installed now; None when it is not there."""
    try:
        return hashlib.sha256(seccomp.profile_path(policy.seccomp_profile).read_bytes()).hexdigest()
    except (Missing, OSError):
        return None
