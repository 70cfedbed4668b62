"""A cgroup that an ordinary user may make cgroups in: tried for real, and made by root.

The OCI runtime needs a directory of its own in every hierarchy that we see. Under systemd the user
manager's cgroup is such a one (Delegate=); elsewhere root makes it once.
"""

from __future__ import annotations

import os
import secrets
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.linux import cgroups, process

if TYPE_CHECKING:
    from reconciler.linux.cgroups import Hierarchy, Layout

# The controllers whose limits are promised.
NEEDED_CONTROLLERS = frozenset({"memory", "pids"})
_V1_FILES = ("cgroup.procs", "tasks")
# /sys/kernel/cgroup/delegate, for kernels without that file (cgroups(7)).
_V2_FILES = ("cgroup.procs", "cgroup.threads", "cgroup.subtree_control")


def parent_of(uid: int) -> str:
    """The cgroup below which the sandboxes of `uid` lie where there is no systemd."""
    # A name of box's own, directly below the root.
    return "/box" if uid == 0 else f"/box-{uid}"


def setup_line(uid: int) -> str:
    """What `uid` pastes to have root make the cgroup `parent_of` names."""
    return shlex.join(["sudo", process.own_program(), "setup", "--user", str(uid)])


def delegation_of(uid: int, own_cgroup: bytes | None = None) -> str | None:
    """A cgroup below which `uid`, who must be us, may make others; None when there is none.

    `own_cgroup` is a /proc/PID/cgroup, by default our own: under version 2 a service or scope with
    Delegate= that we run in is such a place.
    """
    layout = cgroups.detect()
    candidates = [parent_of(uid)]
    if layout.kind == "v2" and uid != 0:
        data = Path("/proc/self/cgroup").read_bytes() if own_cgroup is None else own_cgroup
        path = next(iter(layout.paths_of(data).values()), "/")
        # A cgroup with processes in it cannot enable controllers, so its parent it is.
        candidates.append(str(Path(path).parent))
    return next((each for each in candidates if probe_delegation(each, layout) is None), None)


def probe_delegation(parent: str, layout: Layout | None = None) -> str | None:
    """Why nothing can be made below `parent`, or None: makes and removes a cgroup everywhere."""
    layout = cgroups.detect() if layout is None else layout
    seen = frozenset[str]().union(*(each.controllers for each in layout.hierarchies))
    if missing := NEEDED_CONTROLLERS - seen:
        return f"the kernel has no cgroup controller {', '.join(sorted(missing))}"
    for hierarchy in layout.hierarchies:
        if problem := _probe(hierarchy, parent):
            return problem
    return _unreachable(layout, parent) if layout.kind == "v2" else None


def _unreachable(layout: Layout, parent: str) -> str | None:
    """Why no process of ours gets below `parent`: version 2 also asks their common ancestor."""
    (hierarchy,) = layout.hierarchies
    own = layout.paths_of(Path("/proc/self/cgroup").read_bytes())[hierarchy]
    ancestor = hierarchy.directory(os.path.commonpath((own, parent)))
    if os.geteuid() == 0 or os.access(ancestor / "cgroup.procs", os.W_OK):
        return None
    return f"only root may move processes from {own} to {parent}"


def _probe(hierarchy: Hierarchy, parent: str) -> str | None:
    directory = hierarchy.directory(parent)
    child = directory / f"box-probe-{secrets.token_hex(8)}"
    try:
        child.mkdir()
    except FileNotFoundError:
        # Root's runtime makes what is missing.
        if os.geteuid() == 0 and not directory.exists():
            return None
        return f"the cgroup {directory} does not exist"
    except OSError as error:
        return f"no cgroup can be made in {directory}: {error.strerror}"
    try:
        if not os.access(child / "cgroup.procs", os.W_OK):
            return f"no process can be put into a cgroup of {directory}"
        enabled = (child / "cgroup.controllers").read_text() if hierarchy.version == 2 else ""
    finally:
        child.rmdir()
    missing = (NEEDED_CONTROLLERS & hierarchy.controllers) - set(enabled.split())
    if hierarchy.version == 2 and missing:
        return f"{directory} does not pass on the controllers {', '.join(sorted(missing))}"
    return None


def make_delegation(parent: str, uid: int, gid: int) -> None:
    """Make `parent` in every hierarchy and give it to `uid`:`gid`. Root only; raises OSError."""
    for hierarchy in cgroups.detect().hierarchies:
        directory = Path(hierarchy.mount)
        for name in hierarchy.directory(parent).relative_to(directory).parts:
            if hierarchy.version == 2:
                _enable_controllers(directory)
            directory /= name
            directory.mkdir(exist_ok=True)
            if "cpuset" in hierarchy.controllers and hierarchy.version == 1:
                _fill_cpuset(directory)
        if hierarchy.version == 2:
            _enable_controllers(directory)
        files = _V2_FILES if hierarchy.version == 2 else _V1_FILES
        for path in (directory, *(directory / file for file in files)):
            os.chown(path, uid, gid)


def _fill_cpuset(directory: Path) -> None:
    """A version 1 cpuset starts empty, and no process can enter it then (cpuset(7))."""
    for file in ("cpuset.cpus", "cpuset.mems"):
        if not (directory / file).read_bytes().strip():
            (directory / file).write_bytes((directory.parent / file).read_bytes())


def _enable_controllers(directory: Path) -> None:
    """Pass on to children of `directory` all its controllers; those in use elsewhere stay."""
    wanted = (directory / "cgroup.controllers").read_text().split()
    for controller in wanted:
        if controller in {"cpu", "cpuset", "io", *NEEDED_CONTROLLERS}:
            (directory / "cgroup.subtree_control").write_text(f"+{controller}")
