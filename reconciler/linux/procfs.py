"""Parsers of /proc/PID files: pure functions over bytes, described in proc(5).

What a process or a guest could choose (names, paths) stays bytes or is decoded reversibly with
`os.fsdecode`. Anything unexpected raises ParseError: a reading that cannot be understood must never
pass for a good one. What reads the same again is not parsed again: the same bytes, the same answer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from reconciler.confinement.reading import MappedReading
from reconciler.linux.proc_stat import number, unlike

OVERFLOW_ID = 65_534  # /proc/sys/kernel/overflowuid: an ID that has no name in our user namespace
MAX_ID = 4_294_967_294


@dataclass(frozen=True)
class Status:
    """/proc/PID/status. `uids` and `gids` are real, effective, saved, file system.

    `state` is the letter of proc(5): Z is a zombie.
    """

    state: str
    uids: tuple[int, int, int, int]
    gids: tuple[int, int, int, int]
    groups: tuple[int, ...]
    pids_by_namespace: tuple[int, ...]
    threads: int
    tracer_pid: int
    no_new_privileges: int
    seccomp_mode: int
    seccomp_filters: int
    cap_inheritable: int
    cap_permitted: int
    cap_effective: int
    cap_bounding: int
    cap_ambient: int


@dataclass(frozen=True)
class MountEntry:
    """One line of /proc/PID/mountinfo.

    `root` is the path inside the mounted file system, `options` those of this mount,
    `super_options` those of the file system. `propagation` is empty for a private mount.
    """

    mount_id: int
    parent_id: int
    device: str
    root: str
    target: str
    options: tuple[str, ...]
    propagation: tuple[str, ...]
    fstype: str
    source: str
    super_options: tuple[str, ...]

    @property
    def read_only(self) -> bool:
        """Whether this mount is: a read-write file system can be mounted read-only."""
        return "ro" in self.options


@dataclass(frozen=True)
class CgroupEntry:
    """One line of /proc/PID/cgroup; hierarchy 0 without controllers is version 2."""

    hierarchy: int
    controllers: tuple[str, ...]
    path: str


@dataclass(frozen=True)
class MapLine:
    """One line of a uid_map; `outside` is in the namespace of who opened the file."""

    inside: int
    outside: int
    size: int


@dataclass(frozen=True)
class Limit:
    """One line of /proc/PID/limits; None is unlimited."""

    soft: int | None
    hard: int | None


@dataclass(frozen=True)
class FdInfo:
    """/proc/PID/fdinfo/N: open(2) `flags`, the mount the file came through, its inode there.

    The inode is shown since Linux 5.14; None before. `kind` is told by what the kernel adds for
    files of its own making, "" for all others.
    """

    flags: int
    mount_id: int
    inode: int | None
    kind: str


# Runs of lines of status that change all the time and hold nothing of `Status`: memory, signals,
# switches. Each from where the first line begins to where the line after the last one does.
_RESTLESS = ((b"\nVmPeak:", b"\nThreads:"), (b"\nSigQ:", b"\nCapInh:"), (b"\nvoluntary_ctxt", b""))


def parse_status(data: bytes) -> Status:
    """Parse /proc/PID/status; every field of `Status` must be there, once."""
    return _status(_steady(data))


def _steady(data: bytes) -> bytes:
    """The bytes of status that say the same from one reading to the next."""
    parts = []
    at = 0
    for first, after in _RESTLESS:
        begin = data.find(first, at)
        if begin < 0:
            continue
        parts.append(data[at:begin])
        # The switches are two lines, and whatever comes after them is looked at.
        at = data.find(after, begin) if after else data.find(b"\n", data.find(b"\nnonv", begin) + 1)
        if at < 0:
            return data
    return b"".join((*parts, data[at:]))


@lru_cache(maxsize=4096)
def _status(data: bytes) -> Status:
    fields: dict[bytes, bytes] = {}
    for line in data.splitlines():
        key, colon, value = line.partition(b":")
        if not colon or key in fields:
            raise unlike("status", line)
        fields[key] = value.strip()
    try:
        return Status(
            state=fields[b"State"][:1].decode("ascii"),
            uids=_four(fields[b"Uid"]),
            gids=_four(fields[b"Gid"]),
            groups=tuple(number(word, "status") for word in fields[b"Groups"].split()),
            pids_by_namespace=tuple(number(word, "status") for word in fields[b"NSpid"].split()),
            threads=number(fields[b"Threads"], "status"),
            tracer_pid=number(fields[b"TracerPid"], "status"),
            no_new_privileges=number(fields[b"NoNewPrivs"], "status"),
            seccomp_mode=number(fields[b"Seccomp"], "status"),
            seccomp_filters=number(fields[b"Seccomp_filters"], "status"),
            cap_inheritable=_hex(fields[b"CapInh"]),
            cap_permitted=_hex(fields[b"CapPrm"]),
            cap_effective=_hex(fields[b"CapEff"]),
            cap_bounding=_hex(fields[b"CapBnd"]),
            cap_ambient=_hex(fields[b"CapAmb"]),
        )
    except KeyError as error:
        raise unlike(f"status, which lacks {error},", data) from error


@lru_cache(maxsize=128)
def parse_mountinfo(data: bytes) -> tuple[MountEntry, ...]:
    """Parse /proc/PID/mountinfo in its order: a later line on the same target hides an earlier."""
    return tuple(_mount(line) for line in data.split(b"\n") if line)


def _mount(line: bytes) -> MountEntry:
    # The kernel escapes space, tab, newline and backslash, so single spaces separate the fields.
    fields = line.split(b" ")
    try:
        dash = fields.index(b"-", 6)
    except ValueError:
        raise unlike("mountinfo", line) from None
    if len(fields) != dash + 4 or not re.fullmatch(rb"[0-9]+:[0-9]+", fields[2]):
        raise unlike("mountinfo", line)
    return MountEntry(
        mount_id=number(fields[0], "mountinfo"),
        parent_id=number(fields[1], "mountinfo"),
        device=fields[2].decode(),
        root=_unescape(fields[3]),
        target=_unescape(fields[4]),
        options=_words(fields[5], b","),
        propagation=tuple(os.fsdecode(word) for word in fields[6:dash]),
        fstype=_unescape(fields[dash + 1]),
        source=_unescape(fields[dash + 2]),
        super_options=_words(fields[dash + 3], b","),
    )


def _unescape(field: bytes) -> str:
    return os.fsdecode(re.sub(rb"\\([0-3][0-7]{2})", lambda m: bytes([int(m[1], 8)]), field))


@lru_cache(maxsize=128)
def parse_cgroup(data: bytes) -> tuple[CgroupEntry, ...]:
    """Parse /proc/PID/cgroup. A path may hold colons; a deleted one ends in " (deleted)"."""
    entries = []
    for line in data.split(b"\n"):
        if not line:
            continue
        parts = line.split(b":", 2)
        if len(parts) != 3 or not parts[2].startswith(b"/"):
            raise unlike("cgroup", line)
        hierarchy = number(parts[0], "cgroup")
        entries.append(CgroupEntry(hierarchy, _words(parts[1], b","), os.fsdecode(parts[2])))
    return tuple(entries)


@lru_cache(maxsize=128)
def parse_id_map(data: bytes) -> tuple[MapLine, ...]:
    """Parse /proc/PID/uid_map or gid_map. 4294967295 outside means: not in our namespace."""
    lines = []
    for line in data.splitlines():
        numbers = [number(word, "uid_map") for word in line.split()]
        if len(numbers) != 3:
            raise unlike("uid_map", line)
        lines.append(MapLine(*numbers))
    return tuple(lines)


@lru_cache(maxsize=128)
def parse_limits(data: bytes) -> Mapping[str, Limit]:
    """Parse /proc/PID/limits, by the names it prints: "Max core file size"."""
    limits: dict[str, Limit] = {}
    for line in data.splitlines()[1:]:
        found = re.match(rb"(Max [a-z ]*[a-z]) {2,}([0-9]+|unlimited) +([0-9]+|unlimited)", line)
        if not found:
            raise unlike("limits", line)
        soft, hard = (None if word == b"unlimited" else int(word) for word in found.groups()[1:])
        limits[found[1].decode()] = Limit(soft, hard)
    if not limits:
        raise unlike("limits", data)
    return MappingProxyType(limits)


@lru_cache(maxsize=128)
def parse_net_dev(data: bytes) -> tuple[str, ...]:
    """The interface names of /proc/PID/net/dev, below its two lines of headings."""
    lines = data.splitlines()
    if len(lines) < 2 or b"|" not in lines[0] or b"|" not in lines[1]:
        raise unlike("net/dev", data)
    names = []
    for line in lines[2:]:
        # A name may hold a colon (an alias), the counters after the last one never do.
        name, colon, counters = line.rpartition(b":")
        if not colon or not counters.split() or not all(w.isdigit() for w in counters.split()):
            raise unlike("net/dev", line)
        names.append(os.fsdecode(name.strip()))
    return tuple(names)


_MAP = re.compile(
    rb"[0-9a-f]+-[0-9a-f]+ [r-][w-][x-][ps] [0-9a-f]+ ([0-9a-f]{2,}:[0-9a-f]{2,}) ([0-9]+) *(.*)"
)


@lru_cache(maxsize=128)
def parse_maps(data: bytes) -> tuple[MappedReading, ...]:
    """What /proc/PID/maps has that has an inode, each once, in its order.

    Memory without one is nobody's file. Of the bytes of a name only a newline is escaped, and not
    so that it could be told from a name that holds the escape, so it stays.
    """
    found: dict[MappedReading, None] = {}
    for line in data.split(b"\n"):
        if not line:
            continue
        parts = _MAP.fullmatch(line)
        if parts is None:
            raise unlike("maps", line)
        if inode := number(parts[2], "maps"):
            found[MappedReading(parts[1].decode(), inode, os.fsdecode(parts[3]))] = None
    return tuple(found)


def parse_fdinfo(data: bytes) -> FdInfo:
    """Parse the first lines of /proc/PID/fdinfo/N, the same for every kind of file."""
    fields: dict[bytes, bytes] = {}
    for line in data.splitlines():
        key, _, value = line.partition(b":")
        # What follows the first lines is the file's own business, and may repeat a key.
        fields.setdefault(key, value.strip())
    flags = fields.get(b"flags", b"")
    if not re.fullmatch(rb"[0-7]{1,12}", flags) or b"mnt_id" not in fields:
        raise unlike("fdinfo", data)
    inode = number(fields[b"ino"], "fdinfo") if b"ino" in fields else None
    kind = next((name for key, name in _KINDS.items() if key in fields), "")
    return FdInfo(int(flags, 8), number(fields[b"mnt_id"], "fdinfo"), inode, kind)


# The first key that is a kind's own; proc(5), and each kind's show_fdinfo in the kernel.
_KINDS = {
    b"eventfd-count": "eventfd",
    b"tfd": "eventpoll",
    b"sigmask": "signalfd",
    b"clockid": "timerfd",
    b"SqMask": "io_uring",
    b"SqThread": "io_uring",
    b"prog_type": "bpf program",
    b"map_type": "bpf map",
    b"link_type": "bpf link",
    b"btf_id": "bpf type data",
    b"Pid": "pidfd",
    b"inotify wd": "inotify",
    b"fanotify flags": "fanotify",
    b"fanotify ino": "fanotify",
    b"pending": "userfaultfd",
    b"seccomp": "seccomp notifier",
    b"tty-index": "terminal",
    b"drm-driver": "graphics card",
    b"vfio-device-syspath": "device of the host",
}


def _words(field: bytes, separator: bytes) -> tuple[str, ...]:
    return tuple(os.fsdecode(word) for word in field.split(separator) if word)


def _four(field: bytes) -> tuple[int, int, int, int]:
    numbers = [number(word, "status") for word in field.split()]
    if len(numbers) != 4:
        raise unlike("status", field)
    return numbers[0], numbers[1], numbers[2], numbers[3]


def _hex(word: bytes) -> int:
    if not re.fullmatch(rb"[0-9a-f]{16}", word):
        raise unlike("status", word)
    return int(word, 16)
