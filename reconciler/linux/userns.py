"""Start the OCI runtime in namespaces of its own, as root or as an ordinary user.

An ordinary user's runtime is root of an outer user namespace: 0 there is the user, 1 and up are all
the subordinate IDs in the order of /etc/subuid. The runtime then nests the VMM's own user namespace
in that one. Root needs no outer one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.confinement.policy import IdRange
from reconciler.errors import BoxError
from reconciler.linux import process

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from subprocess import Popen

    from reconciler.linux.subids import HostRange, SubordinateRanges

_ENTER = Path(__file__).with_name("enter.py")
_MAP_TIMEOUT_SECONDS = 10.0
# The kernel takes up to 340 lines in a map (user_namespaces(7)).
_MAX_MAP_LINES = 340


class MapsRefused(BoxError):
    """newuidmap or newgidmap would not write a map."""


@dataclass(frozen=True)
class OuterMaps:
    """The maps of the launcher's user namespace, as newuidmap takes them."""

    uids: tuple[IdRange, ...]
    gids: tuple[IdRange, ...]

    def uid_inside(self, host_uid: int) -> int:
        """`host_uid` as the runtime sees it, to be written into the OCI config."""
        return _inside(self.uids, host_uid, "UID")

    def gid_inside(self, host_gid: int) -> int:
        """`host_gid` as the runtime sees it."""
        return _inside(self.gids, host_gid, "GID")


def _inside(ranges: tuple[IdRange, ...], host_id: int, kind: str) -> int:
    for each in ranges:
        if each.host <= host_id < each.host + each.size:
            return each.inside + host_id - each.host
    raise MapsRefused(f"{kind} {host_id} is not among this user's own IDs.")


def outer_map(uid: int, gid: int, ranges: SubordinateRanges) -> OuterMaps:
    """The maps of a namespace in which `uid`:`gid` is root and every subordinate ID exists."""
    return OuterMaps(_stacked(uid, ranges.uids), _stacked(gid, ranges.gids))


def _stacked(own: int, ranges: tuple[HostRange, ...]) -> tuple[IdRange, ...]:
    lines = [IdRange(0, own, 1)]
    inside = 1
    for each in ranges[: _MAX_MAP_LINES - 1]:
        lines.append(IdRange(inside, each.start, each.size))
        inside += each.size
    return tuple(lines)


def write_maps(pid: int, maps: OuterMaps) -> None:
    """Write both maps of `pid`'s new user namespace with the set-uid helpers of shadow.

    Raises Missing without the helpers, MapsRefused with their message when they will not.
    """
    for program, ranges in (("newuidmap", maps.uids), ("newgidmap", maps.gids)):
        path = process.require_program(program, "uidmap")
        triples = [str(n) for each in ranges for n in (each.inside, each.host, each.size)]
        try:
            process.run([path, str(pid), *triples], timeout_seconds=_MAP_TIMEOUT_SECONDS)
        except process.CommandFailed as error:
            raise MapsRefused(
                f"{program} refused the map of the launcher's user namespace.",
                details=error.details,
                hint="compare `box doctor` with /etc/subuid and /etc/subgid",
            ) from error


@contextlib.contextmanager
def start_in_namespaces(
    argv: Sequence[str],
    *,
    prefix: Sequence[str] = (),
    maps: OuterMaps | None,
    scratch_dir: str,
    config: bytes,
    rootfs_owner: tuple[int, int],
    pass_fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    stdin: int = process.DEVNULL,
    stdout: int = process.DEVNULL,
    stderr: int = process.DEVNULL,
    errors: int | None = None,
) -> Iterator[Popen[bytes]]:
    """Start the runtime `argv` where `scratch_dir` holds a bundle: config.json and rootfs/.

    `argv[0]` is an absolute path; `prefix` is a command that executes what follows it, here the
    launcher; `maps` is None under root. `rootfs_owner` is the UID and GID of the container's root,
    as the runtime sees them. `pass_fds` arrive as descriptors 3, 4, ... of the runtime, in that
    order. The standard streams are the runtime's and the container's. A launcher that fails exits
    125 with one line to `errors`, else to `stderr`. The caller waits for the process: at the end of
    the block it is gone, and what it detached lives on.
    Raises MapsRefused or Missing, with nothing left running.
    """
    with contextlib.ExitStack() as stack:
        options = ["--parent", str(os.getpid())]
        options += ["--scratch", scratch_dir, "--owner", *(str(n) for n in rootfs_owner)]
        config_fd = _in_memory(stack, config)
        fds = [config_fd, *pass_fds]
        options += ["--config", str(config_fd)]
        for fd in pass_fds:
            options += ["--fd", str(fd)]
        if errors is not None:
            options += ["--errors", str(errors)]
            fds.append(errors)
        ready = go = None
        if maps is not None:
            ready, go = _Pipe(stack), _Pipe(stack)
            options += ["--maps", str(ready.write), str(go.read)]
            fds += [ready.write, go.read]
        child = stack.enter_context(
            process.start(
                [*prefix, sys.executable, "-I", "-S", _ENTER, *options, "--", *argv],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=env,
                pass_fds=fds,
            )
        )
        if maps is not None and ready is not None and go is not None:
            ready.close_write()
            # The end of the file here is a launcher that has already said why on its stderr.
            if os.read(ready.read, 1) == b"r":
                write_maps(child.pid, maps)
                os.write(go.write, b"g")
        yield child


class _Pipe:
    """A pipe(2) whose ends the stack closes."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.read, self.write = os.pipe2(os.O_CLOEXEC)
        stack.callback(os.close, self.read)
        self._writer = stack.enter_context(contextlib.ExitStack())
        self._writer.callback(os.close, self.write)

    def close_write(self) -> None:
        """Close our copy of the writing end, so that the other's death ends the reading."""
        self._writer.close()


def _in_memory(stack: contextlib.ExitStack, content: bytes) -> int:
    fd = os.memfd_create("box-config", os.MFD_CLOEXEC)
    stack.callback(os.close, fd)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
