"""Other running sandboxes: what a VMM must have nothing of in common with.

A namespace's number is given anew once nobody holds it, so a neighbour counts only while it runs:
it is asked again at the end of its own reading.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from reconciler.confinement.policy import IdRange
from reconciler.confinement.reading import NamespaceId, Neighbour, Unreadable
from reconciler.linux import host_side, identity, procfs
from reconciler.linux.proc_stat import ParseError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.linux.identity import Process, ProcessIdentity


def read_neighbours(known: Mapping[str, ProcessIdentity]) -> dict[str, Neighbour]:
    """The running ones of `known`, by the same names."""
    found = {}
    for name, who in known.items():
        try:
            neighbour = _running(who)
        except identity.HiddenProcess as error:
            hidden = Unreadable(str(error))
            neighbour = Neighbour(dict.fromkeys(host_side.KINDS, hidden), hidden, hidden)
        if neighbour is not None:
            found[name] = neighbour
    return found


def _running(who: ProcessIdentity) -> Neighbour | None:
    with identity.open_process(who) as process:
        if process is None:
            return None
        neighbour = _read(process)
        return neighbour if process.unchanged() else None


def _read(process: Process) -> Neighbour:
    return Neighbour(
        {kind: _namespace(process, kind) for kind in host_side.KINDS},
        _map(process, "uid_map"),
        _map(process, "gid_map"),
    )


def _namespace(process: Process, kind: str) -> NamespaceId | Unreadable:
    try:
        found = os.stat(f"ns/{kind}", dir_fd=process.directory)
    except OSError as error:
        return Unreadable(f"ns/{kind}: {error.strerror}")
    return NamespaceId(found.st_dev, found.st_ino)


def _map(process: Process, name: str) -> tuple[IdRange, ...] | Unreadable:
    try:
        lines = procfs.parse_id_map(process.read(name))
    except OSError as error:
        return Unreadable(f"{name}: {error.strerror}")
    except ParseError as error:
        return Unreadable(str(error))
    return tuple(IdRange(each.inside, each.outside, each.size) for each in lines)
