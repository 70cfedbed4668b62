"""What a probe says of itself beside what was read of it from outside, promise by promise.

Both in the same terms: IDs as the reader sees them, namespaces by inode, mounts by their lines.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reconciler.linux import procfs
from reconciler.linux.userns import OuterMaps

if TYPE_CHECKING:
    from reconciler.confinement.policy import IdRange, Policy
    from reconciler.confinement.reading import Reading

View = dict[str, Any]

TRIED = {
    "limit.pids": "limit.threads",
    "limit.memory": "limit.memory",
    "limit.swap": "limit.memory",
    "limit.devices": "device.mknod",
    "seccomp.filter": "process.ptrace",
    "apart.namespaces": "setns.victim",
    "apart.ids": "signal.kill",
}
"""What cannot be seen from inside, and an attempt that works where it is not so."""


class Sides:
    """One reading from outside and one view from inside of the same single process."""

    def __init__(
        self, policy: Policy, reading: Reading, view: View, maps: OuterMaps | None
    ) -> None:
        (self.process,) = reading.processes
        (self.thread,) = self.process.threads
        self.reading = reading
        self.policy = policy
        self.view = view
        self.maps = maps
        self.status = dict(
            line.split(":\t", 1) for line in view["files"]["status"].splitlines() if ":\t" in line
        )

    def uid(self, inside: int) -> int:
        """A UID of the probe's as the host numbers it."""
        return _host(self.policy.uid_map, inside)

    def gid(self, inside: int) -> int:
        """A GID of the probe's as the host numbers it."""
        return _host(self.policy.gid_map, inside)


def disagreements(sides: Sides) -> list[str]:
    """Each promise of which inside and outside say different things."""
    found = []
    for promise, both in COMPARED.items():
        outside, inside = both(sides)
        if outside != inside:
            found.append(f"{promise}: {outside!r} from outside, {inside!r} from inside")
    return found


def _host(ranges: tuple[IdRange, ...], inside: int) -> int:
    for each in ranges:
        if each.inside <= inside < each.inside + each.size:
            return each.host + inside - each.inside
    raise LookupError(inside)


def _environment(sides: Sides) -> tuple[object, object]:
    inside = sum(len(each.encode()) + 1 for each in sides.view["environment"])
    return sides.process.environment_bytes, inside


def _uids(sides: Sides) -> tuple[object, object]:
    inside = [*sides.view["uids"], int(sides.status["Uid"].split()[3])]
    return list(sides.thread.uids), [sides.uid(each) for each in inside]


def _gids(sides: Sides) -> tuple[object, object]:
    inside = [*sides.view["gids"], int(sides.status["Gid"].split()[3])]
    return list(sides.thread.gids), [sides.gid(each) for each in inside]


def _groups(sides: Sides) -> tuple[object, object]:
    return list(sides.thread.groups), [sides.gid(each) for each in sides.view["groups"]]


def _uid_map(sides: Sides) -> tuple[object, object]:
    lines = sides.process.uid_map
    assert isinstance(lines, tuple)
    there = sides.maps.uid_inside if sides.maps else int
    return _as_seen(lines, there), _map(sides.view["files"]["uid_map"])


def _gid_map(sides: Sides) -> tuple[object, object]:
    lines = sides.process.gid_map
    assert isinstance(lines, tuple)
    there = sides.maps.gid_inside if sides.maps else int
    return _as_seen(lines, there), _map(sides.view["files"]["gid_map"])


def _as_seen(lines: tuple[IdRange, ...], there: Callable[[int], int]) -> list[list[int]]:
    """As in the user namespace above the probe's, where its own map shows it."""
    return [[each.inside, there(each.host), each.size] for each in lines]


def _map(text: str) -> list[list[int]]:
    return [[int(word) for word in line.split()] for line in text.splitlines()]


def _capabilities(sides: Sides) -> tuple[object, object]:
    ambient = {"ambient": int(sides.status["CapAmb"], 16)}
    return sides.thread.capabilities, {**sides.view["capabilities"], **ambient}


def _no_new_privs(sides: Sides) -> tuple[object, object]:
    return sides.thread.no_new_privileges, sides.view["no_new_privs"]


def _seccomp(sides: Sides) -> tuple[object, object]:
    inside = sides.view["seccomp"], int(sides.status["Seccomp_filters"])
    return (sides.thread.seccomp_mode, sides.thread.seccomp_filters), inside


def _untraced(sides: Sides) -> tuple[object, object]:
    return sides.thread.tracer_pid, int(sides.status["TracerPid"])


def _namespace(kind: str) -> Callable[[Sides], tuple[object, object]]:
    def both(sides: Sides) -> tuple[object, object]:
        outside = sides.thread.namespaces[kind]
        return getattr(outside, "inode", outside), sides.view["namespaces"][kind]

    return both


def _interfaces(sides: Sides) -> tuple[object, object]:
    lines = sides.view["files"]["net/dev"].splitlines()[2:]
    return sides.process.interfaces, tuple(line.split(":")[0].strip() for line in lines)


def _cgroup_path(sides: Sides) -> tuple[object, object]:
    """From inside its own cgroup is the root of all."""
    assert isinstance(sides.thread.cgroups, dict)
    lines = [line.split(":", 2) for line in sides.view["files"]["cgroup"].splitlines()]
    paths = {name: path for _, names, path in lines for name in names.split(",")}
    inside = {
        name: sides.policy.cgroup + paths.get(name, paths.get("", "")).rstrip("/")
        for name in sides.thread.cgroups
    }
    return sides.thread.cgroups, inside


def _members(sides: Sides) -> tuple[object, object]:
    """The PIDs of one process, once as the host numbers it and once as it does."""
    assert isinstance(sides.reading.members, frozenset)
    alone = sides.reading.members == {sides.reading.pid}
    return alone, sides.view["processes"] == [sides.view["pid"]]


def _rlimits(*, core: bool) -> Callable[[Sides], tuple[object, object]]:
    def both(sides: Sides) -> tuple[object, object]:
        assert isinstance(sides.process.rlimits, dict)
        names = [n for n in sides.process.rlimits if (n == "RLIMIT_CORE") is core]
        inside = {name: tuple(sides.view["rlimits"][name]) for name in names}
        return {name: sides.process.rlimits[name] for name in names}, inside

    return both


def _oom_score(sides: Sides) -> tuple[object, object]:
    return sides.process.oom_score_adj, int(sides.view["files"]["oom_score_adj"])


def _lines(sides: Sides) -> list[list[str]]:
    return [line.split(" ") for line in sides.view["files"]["mountinfo"].splitlines()]


def _mounts(sides: Sides) -> tuple[object, object]:
    assert isinstance(sides.process.mounts, tuple)
    outside = [
        (each.mount_id, each.device, each.root, each.target, ",".join(each.options))
        for each in sides.process.mounts
    ]
    inside = [(int(line[0]), line[2], line[3], line[4], line[5]) for line in _lines(sides)]
    return outside, inside


def _propagation(sides: Sides) -> tuple[object, object]:
    assert isinstance(sides.process.mounts, tuple)
    outside = [list(each.propagation) for each in sides.process.mounts]
    return outside, [line[6 : line.index("-")] for line in _lines(sides)]


def _files(sides: Sides) -> tuple[object, object]:
    assert isinstance(sides.process.files, tuple)
    outside = {each.fd: (each.mount_id, each.inode) for each in sides.process.files}
    inside = {}
    for fd, text in sides.view["descriptors"].items():
        fields = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        inside[int(fd)] = int(fields["mnt_id"]), int(fields["ino"])
    return outside, inside


def _text(place: object) -> object:
    return getattr(place, "text", place)


def _root(sides: Sides) -> tuple[object, object]:
    outside = [_text(sides.process.root), _text(sides.process.directory)]
    return outside, [sides.view["root"], sides.view["directory"]]


def _program(sides: Sides) -> tuple[object, object]:
    return _text(sides.process.program), sides.view["program"]


def _terminal(sides: Sides) -> tuple[object, object]:
    # What follows the name in proc_pid_stat(5): state, parent, group, session, terminal.
    return sides.process.tty, int(sides.view["files"]["stat"].rpartition(") ")[2].split()[4])


def _label(sides: Sides) -> tuple[object, object]:
    """A kernel without labels answers nothing, on either side."""
    inside = (sides.view["files"]["attr/current"] or "").rstrip("\0\n")
    return sides.thread.label if isinstance(sides.thread.label, str) else "", inside


def _masked(sides: Sides) -> tuple[object, object]:
    return sides.process.masked, sides.view["masked"]


def _kinds(sides: Sides) -> tuple[object, object]:
    assert isinstance(sides.process.files, tuple)
    inside = {}
    for fd, link in sides.view["kinds"].items():
        prefix, _, kind = link.partition("anon_inode:")
        inside[int(fd)] = "" if prefix else kind.strip("[]")
    return {each.fd: each.kind for each in sides.process.files}, inside


def _mapped(sides: Sides) -> tuple[object, object]:
    assert isinstance(sides.process.mapped, tuple)
    inside = procfs.parse_maps(os.fsencode(sides.view["files"]["maps"]))
    return set(sides.process.mapped), set(inside)


COMPARED: dict[str, Callable[[Sides], tuple[object, object]]] = {
    "identity.uid": _uids,
    "identity.gid": _gids,
    "identity.groups": _groups,
    "identity.uid_map": _uid_map,
    "identity.gid_map": _gid_map,
    "capabilities": _capabilities,
    "no_new_privs": _no_new_privs,
    "seccomp": _seccomp,
    "untraced": _untraced,
    "label": _label,
    "program": _program,
    "environment": _environment,
    "root": _root,
    "terminal": _terminal,
    **{
        f"namespace.{kind}": _namespace(kind)
        for kind in ("user", "mnt", "pid", "ipc", "uts", "net", "cgroup")
    },
    "network.interfaces": _interfaces,
    "cgroup.path": _cgroup_path,
    "cgroup.members": _members,
    "limit.core": _rlimits(core=True),
    "limit.rlimits": _rlimits(core=False),
    "oom_score": _oom_score,
    "mounts.declared": _mounts,
    "mounts.masked": _masked,
    "mounts.private": _propagation,
    "files.open": _files,
    "files.kinds": _kinds,
    "files.mapped": _mapped,
}
