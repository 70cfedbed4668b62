"""What may happen to a VMM once it runs: each changes one thing, and puts it back."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pty
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.confinement.policy import Slot
from reconciler.linux import cgroups, identity
from reconciler.linux.cgroups import Hierarchy
from reconciler.linux.identity import ProcessIdentity
from tests.probe import standing, weaker
from tests.probe.standing import Stand

_SECONDS = 60.0
_OTHER_SLOT = Slot(1, 1_900_065_536, 1_900_065_536)


@dataclass(frozen=True)
class Around:
    """Whom to read, and which other sandboxes run at the same time."""

    who: ProcessIdentity
    others: dict[str, ProcessIdentity] = field(default_factory=dict)


def _directory(stand: Stand, controller: str) -> Path:
    hierarchy = cgroups.detect().of_controller(controller)
    assert hierarchy is not None
    return hierarchy.directory(stand.policy.cgroup)


@contextlib.contextmanager
def more_threads(stand: Stand) -> Iterator[Around]:
    """Somebody takes the limit off."""
    file = _directory(stand, "pids") / "pids.max"
    before = file.read_text()
    file.write_text("max")
    yield Around(stand.who)
    file.write_text(before)


@contextlib.contextmanager
def another_cgroup(stand: Stand) -> Iterator[Around]:
    """It is in a cgroup below its own, whose limits may be anything another time."""
    directory = _directory(stand, "pids")
    below = directory / "below"
    below.mkdir()
    try:
        (below / "cgroup.procs").write_text(str(stand.who.pid))
        yield Around(stand.who)
    finally:
        (directory / "cgroup.procs").write_text(str(stand.who.pid))
        below.rmdir()


def a_thread_out_of(controller: str) -> Callable[[Stand], AbstractContextManager[Around]]:
    """One thread, not the first, left the cgroup of a controller of version 1.

    There each thread has a cgroup of its own; version 2 moves whole processes.
    """

    @contextlib.contextmanager
    def moved(stand: Stand) -> Iterator[Around]:
        hierarchy = _v1(controller)
        (Path(hierarchy.mount) / "tasks").write_text(_another_thread(stand))
        yield Around(stand.who)

    moved.__name__ = f"a_thread_out_of_{controller}"
    return moved


@contextlib.contextmanager
def a_thread_below_its_cgroup(stand: Stand) -> Iterator[Around]:
    """One thread is in a cgroup below the others': of what stops those right in the upper one."""
    hierarchy = _v1("freezer")
    below = hierarchy.directory(stand.policy.cgroup) / "below"
    below.mkdir()
    (below / "tasks").write_text(_another_thread(stand))
    yield Around(stand.who)


@contextlib.contextmanager
def memory_that_hangs(stand: Stand) -> Iterator[Around]:
    """Who is over the limit waits for ever, and is not ended."""
    _v1("memory")
    file = _directory(stand, "memory") / "memory.oom_control"
    file.write_text("1")
    yield Around(stand.who)
    file.write_text("0")


def _another_thread(stand: Stand) -> str:
    """The number of one that it has besides its first."""
    stand.talk.command("thread")
    listed = {each.name for each in Path(f"/proc/{stand.who.pid}/task").iterdir()}
    return (listed - {str(stand.who.pid)}).pop()


def _v1(controller: str) -> Hierarchy:
    """The hierarchy of a controller of version 1; the test is skipped where there is none."""
    hierarchy = cgroups.detect().of_controller(controller)
    if hierarchy is None or hierarchy.version == 2:
        # Not at the top: an ordinary user's Python, which loads this too, has none.
        import pytest

        pytest.skip(f"version 1 of cgroups does not have {controller} here")
    return hierarchy


@contextlib.contextmanager
def another_process(stand: Stand) -> Iterator[Around]:
    """A second process in the jail, held to the same in every way."""
    if stand.launch.runtime.path.name != "runc":
        # Not at the top: an ordinary user's Python, which loads this too, has none.
        import pytest

        pytest.skip("how another process gets into a jail that crun made is not written yet")
    home, name = stand.launch.home, stand.launch.name
    config = json.loads((home / "runtime" / name / "state.json").read_text())["config"]
    process = _process_like(config, stand)
    request = stand.launch.directory / "process.json"
    request.write_text(json.dumps(process))
    # runc wants the container's root to be where it was at the launch, though it does not use it.
    script = 'mount -t tmpfs none "$1" && mkdir "$2" && shift 2 && exec "$@"'
    bundle = Path(config["rootfs"]).parent
    again = ["unshare", "--mount", "sh", "-c", script, "sh", str(bundle), config["rootfs"]]
    runc = [str(stand.launch.runtime.path), "--root", str(home / "runtime"), "exec", "--detach"]
    subprocess.run(
        [*again, *runc, "--process", str(request), name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=_SECONDS,
    )
    yield Around(stand.who)


def _process_like(config: dict[str, Any], stand: Stand) -> dict[str, Any]:
    policy = stand.policy
    kinds = ("bounding", "effective", "permitted", "inheritable", "ambient")
    return {
        # Without its first two descriptors it sleeps at once.
        "args": ["/env", "-i", str(stand.launch.files.binary), "beside"],
        "cwd": "/",
        "env": [],
        "user": {"uid": policy.process_uid, "gid": policy.process_gid},
        "capabilities": {each: list(policy.capabilities) for each in kinds},
        "noNewPrivileges": policy.no_new_privileges,
        "oomScoreAdj": config["oom_score_adj"],
        "rlimits": [{"type": r.name, "soft": r.soft, "hard": r.hard} for r in policy.rlimits],
    }


@contextlib.contextmanager
def a_debugger(stand: Stand) -> Iterator[Around]:
    """ptrace(2) from outside, as root may."""
    command = ["strace", "-f", "-o", "/dev/null", "-p", str(stand.who.pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as tracer:
        assert tracer.stderr is not None
        assert b"attached" in tracer.stderr.readline()
        yield Around(stand.who)
        tracer.terminate()


@contextlib.contextmanager
def an_interface(stand: Stand) -> Iterator[Around]:
    """A way out of its network namespace."""
    inside = ["nsenter", "--target", str(stand.who.pid), "--net"]
    command = ["ip", "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"]
    subprocess.run([*inside, *command], check=True, timeout=_SECONDS)
    yield Around(stand.who)


@contextlib.contextmanager
def a_directory_left_open(stand: Stand) -> Iterator[Around]:
    """One handle on the host's root, from which everything can be reached."""
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        stand.talk.aim({}, fd)
        # An answer: the descriptor has arrived.
        stand.talk.view()
        yield Around(stand.who)
    finally:
        os.close(fd)


@contextlib.contextmanager
def a_file_left_open(stand: Stand) -> Iterator[Around]:
    """A file of the host that the policy does not name."""
    other = stand.launch.directory / "other"
    other.touch()
    with other.open("rb") as file:
        stand.talk.aim({}, file.fileno())
        stand.talk.view()
        yield Around(stand.who)


@contextlib.contextmanager
def a_file_left_in_memory(stand: Stand) -> Iterator[Around]:
    """A file of the host that it has mapped; the descriptor is closed again."""
    other = stand.launch.directory / "other"
    other.write_bytes(b"of the host")
    with other.open("rb") as file:
        stand.talk.aim({}, file.fileno())
        stand.talk.command("map")
    yield Around(stand.who)


@contextlib.contextmanager
def an_unfiltered_thread(stand: Stand) -> Iterator[Around]:
    """All but one thread are under a filter: of a VMM that was started without one."""
    stand.talk.command("thread")
    stand.talk.command("filter")
    yield Around(stand.who)


@contextlib.contextmanager
def a_watch_on_the_host(stand: Stand) -> Iterator[Around]:
    """inotify(7), which would tell who comes and goes in a directory of the host."""
    fd = ctypes.CDLL(None).inotify_init1(os.O_CLOEXEC)
    try:
        stand.talk.aim({}, fd)
        stand.talk.view()
        yield Around(stand.who)
    finally:
        os.close(fd)


@contextlib.contextmanager
def a_terminal(stand: Stand) -> Iterator[Around]:
    """A terminal of the host, into which it could type."""
    ours, theirs = pty.openpty()
    try:
        stand.talk.aim({}, theirs)
        stand.talk.command("terminal")
        yield Around(stand.who)
    finally:
        os.close(theirs)
        os.close(ours)


@contextlib.contextmanager
def another_program(stand: Stand) -> Iterator[Around]:
    """The same bytes out of memory: what runs is no mount of the jail's."""
    stand.talk.tell("become")
    deadline = time.monotonic() + _SECONDS
    while (who := identity.identify(stand.who.pid)) in {None, stand.who}:
        assert time.monotonic() < deadline
    assert who is not None
    yield Around(who)


@contextlib.contextmanager
def another_in_its_slot(stand: Stand) -> Iterator[Around]:
    """A second sandbox that was given the same IDs."""
    launch = stand.launch
    second = standing.launch_of(launch.home, launch.files.binary, "strict", launch.slot)
    with standing.standing(second) as other:
        yield Around(stand.who, {"other": other.who})


@contextlib.contextmanager
def another_in_its_namespace(stand: Stand) -> Iterator[Around]:
    """A second sandbox, with IDs of its own, in the IPC namespace of the first."""
    launch = stand.launch
    folder = launch.directory / "weaker"
    folder.mkdir()
    joins = weaker.runtime_with(launch.runtime, "in_the_ipc_namespace_of", folder, stand.who.pid)
    second = standing.launch_of(launch.home, launch.files.binary, "strict", _OTHER_SLOT, joins)
    with standing.standing(second) as other:
        yield Around(stand.who, {"other": other.who})
