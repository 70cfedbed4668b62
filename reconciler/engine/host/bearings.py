"""Which promises of security/promises.yaml each check stands behind.

The ids are looked up when this is imported: one that is in no list of promises is a KeyError.
"""

from __future__ import annotations

from reconciler.confinement.promises import PROMISES, promise
from reconciler.engine.host.check import Bearing, Seen, Status

_STRICT = ("strict",)
_STANDARD = ("standard",)
_NAMESPACES = tuple(each.id for each in PROMISES if each.id.startswith("namespace."))
_IDS = tuple(each.id for each in PROMISES if each.id.startswith("identity."))
# What the OCI runtime applies, all of it before the VMM's first instruction.
_LAUNCH = (
    *_IDS,
    *_NAMESPACES,
    "capabilities",
    "no_new_privs",
    "seccomp",
    "root",
    "mounts.declared",
    "mounts.masked",
    "mounts.private",
    "files.open",
    "limit.core",
    "limit.devices",
    "limit.rlimits",
    "oom_score",
)
_LIMITS = ("cgroup.path", "cgroup.members", "limit.pids", "limit.memory", "limit.swap")

BEARINGS = {
    "runtime": Bearing("kept_by", (*_LAUNCH, *_LIMITS)),
    "container.strict": Bearing("kept_by", _LAUNCH, _STRICT),
    "container.standard": Bearing("kept_by", _LAUNCH, _STANDARD),
    "namespaces": Bearing("kept_by", (*_NAMESPACES, "mounts.declared", "mounts.private")),
    "cgroups": Bearing("kept_by", _LIMITS),
    "ids": Bearing("kept_by", (*_IDS, "apart.ids"), _STRICT),
    "slots": Bearing("kept_by", (*_IDS, "apart.ids"), _STRICT),
    "qemu": Bearing("kept_by", ("program", "environment")),
    "reading.filter": Bearing("unread", ("seccomp.filter",)),
    "reading.label": Bearing("unread", ("label",)),
    "version.runc": Bearing("weakened", ("files.open", "root", "mounts.masked", "label")),
    "version.crun": Bearing("weakened", ("mounts.declared", "mounts.masked")),
    "host.ptrace": Bearing("weakened", ("untraced",), _STANDARD),
    "host.swap": Bearing("weakened", ("limit.swap",)),
    "host.core": Bearing("weakened", ("limit.core",)),
}
for _bearing in BEARINGS.values():
    for _id in _bearing.promises:
        promise(_id)


def bearing_of(check_id: str, seen: Seen) -> Bearing | None:
    """What a check that did not do well has to do with promises."""
    known = BEARINGS.get(check_id)
    if known is None or seen.status is Status.OK:
        return None
    # What was not tried says nothing about a promise, unless that is what it is about.
    if seen.status is Status.NOT_APPLICABLE and known.effect != "unread":
        return None
    return known
