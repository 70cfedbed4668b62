"""The jail: an OCI container without an image, from its start to the last trace of it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.backends.oci import oci_spec
from reconciler.backends.runtime import (
    Runtime,
    environment,
    launcher_prefix,
    oci_cgroups_path,
)
from reconciler.codes import Code
from reconciler.confinement.policy import Policy
from reconciler.errors import BoxError, Missing
from reconciler.linux import cgroups, identity, plain, scopes, subids, userns
from reconciler.linux.identity import ProcessIdentity

if TYPE_CHECKING:
    from subprocess import Popen

SCRATCH_DIRECTORIES = ("/mnt", "/srv", "/media", "/opt")
"""Where a bundle may lie in the launch's own mount namespace: directories that every host has."""

_RUNTIME_ROOT = "runtime"
_START_SECONDS = 30.0
_END_SECONDS = 10.0
_POLL_SECONDS = 0.01
_STDERR_BYTES = 8192


class JailFailed(BoxError):
    """The OCI runtime could not start the jail, or the VMM in it ended at once."""

    code = Code.VM_FAILED


@dataclass(frozen=True)
class Jail:
    """One jail: `name` is the container's, `group` the last part of its cgroup's path."""

    home: Path
    runtime: Runtime
    name: str
    group: str
    policy: Policy

    @property
    def runtime_root(self) -> Path:
        """Where the runtime keeps its own state."""
        return self.home / _RUNTIME_ROOT


class StartedJail:
    """A jail that is being started; `stderr` is what the VMM says on its standard error.

    Nobody reads the pipe once this is closed: what the VMM prints later is an EPIPE for it, and
    can neither grow a file nor block.
    """

    def __init__(
        self, jail: Jail, launcher: Popen[bytes], *, stderr: int, pid_file: Path, log: Path
    ) -> None:
        # Held by nothing that this holds: the collector would free a Popen in a cycle, whose
        # `__del__` swallows the exception of a signal that came while the collector was at work.
        self._launcher = launcher
        self._jail = jail
        self._stderr = stderr
        self._pid_file = pid_file
        self._log = log

    def wait(self, timeout_seconds: float = _START_SECONDS) -> None:
        """Wait until the runtime has started the VMM; JailFailed when it could not."""
        if not _ends(self._launcher.pid, timeout_seconds):
            raise JailFailed("The OCI runtime did not start the jail in time.")
        if self._launcher.wait() != 0:
            raise JailFailed(
                f"The OCI runtime {self._jail.runtime.name} could not start the jail.",
                details=_tail(self._log) or self.complaint(),
                hint="`box doctor` tells what the host lacks",
            )

    def identity(self) -> ProcessIdentity:
        """The VMM's process, to be asked for once the VMM has spoken.

        The runtime returns before its own process in the jail has executed the VMM, so until then
        this is the identity of a program that will soon be gone. Raises JailFailed.
        """
        found = identity.identify(int(self._pid_file.read_text()))
        if found is None:
            raise JailFailed("The VMM ended at once.", details=self.complaint())
        return found

    def complaint(self) -> str:
        """What the VMM has printed so far, as text that is safe to show."""
        with contextlib.suppress(BlockingIOError):
            return _shown(os.read(self._stderr, _STDERR_BYTES))
        return ""


def outer_maps() -> userns.OuterMaps | None:
    """The maps of the launcher's user namespace; None under root, which needs none.

    Raises Missing without subordinate GIDs: newgidmap then forbids setgroups(2) in the namespace,
    by which a VMM is rid of the user's groups.
    """
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        return None
    tables, name = subids.read_tables(), subids.user_name(uid)
    ranges = subids.ranges_of(tables, name, uid)
    if not ranges.gids:
        raise Missing(
            f"{name} has no subordinate GIDs, without which a VMM would keep your groups.",
            hint=subids.with_sudo(subids.usermod_line(tables, name)),
        )
    return userns.outer_map(uid, gid, ranges)


@contextlib.contextmanager
def start(jail: Jail, argv: Sequence[str], *, pass_fds: Sequence[int]) -> Iterator[StartedJail]:
    """Start `argv` in the jail, detached: yields a StartedJail at once.

    `pass_fds` arrive as 3, 4, ... and stay the caller's. When the block raises, the jail is gone.
    """
    maps = outer_maps()
    cgroups_path = oci_cgroups_path(jail.runtime, jail.group)
    spec = oci_spec(jail.policy, cgroups_path, maps, argv)
    owner = (spec["linux"]["uidMappings"][0]["hostID"], spec["linux"]["gidMappings"][0]["hostID"])
    scratch = _scratch_directory(jail.policy)
    jail.runtime_root.mkdir(mode=0o700, exist_ok=True)
    pid_file = jail.runtime_root / f"{jail.name}.pid"
    log = jail.runtime_root / f"{jail.name}.log"
    command = _command(jail, log, "run", "--detach", "--bundle", scratch)
    command += ["--pid-file", str(pid_file), "--preserve-fds", str(len(pass_fds)), jail.name]
    with contextlib.ExitStack() as stack:
        # Registered first, so done last: the launcher has ended by then and can make nothing more.
        stack.push(_removal(jail))
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        stack.callback(os.close, reader)
        errors = plain.open_plain(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            launcher = stack.enter_context(
                userns.start_in_namespaces(
                    command,
                    prefix=launcher_prefix(jail.runtime),
                    maps=maps,
                    scratch_dir=scratch,
                    config=json.dumps(spec).encode(),
                    rootfs_owner=owner,
                    pass_fds=pass_fds,
                    env=environment(jail.runtime),
                    stderr=writer,
                    errors=errors,
                )
            )
        finally:
            os.close(writer)
            os.close(errors)
        yield StartedJail(jail, launcher, stderr=reader, pid_file=pid_file, log=log)


def _ends(child: int, timeout_seconds: float) -> bool:
    # Told at once by the kernel: Popen.wait with a timeout sleeps, up to 50 ms at a time.
    pidfd = os.pidfd_open(child)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return bool(poll.poll(timeout_seconds * 1000))
    finally:
        os.close(pidfd)


def _removal(jail: Jail) -> Callable[..., None]:
    def remove_failed(kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            remove(jail.home, jail.name, jail.policy.cgroup)

    return remove_failed


def remove(home: Path, name: str, cgroup: str) -> None:
    """End everything in the jail and take away all traces of it; twice is the same as once.

    Needs nothing but the names: works when the runtime's own state is half-written.
    """
    layout = cgroups.detect()
    _end_cgroup(cgroup, layout.directories(cgroup))
    _forget(home / _RUNTIME_ROOT, name)


def _end_cgroup(cgroup: str, paths: Sequence[Path]) -> None:
    deadline = time.monotonic() + _END_SECONDS
    while True:
        cgroups.kill_all(paths)
        scopes.settle(cgroup, paths)
        try:
            cgroups.remove(paths)
        except OSError as error:
            # A process of a killed runtime's may still have entered one, or be on its way out.
            if error.errno != errno.EBUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return


def _forget(runtime_root: Path, name: str) -> None:
    import shutil

    # The runtime's record: its own `delete` would do no more than this once the cgroup is gone.
    shutil.rmtree(runtime_root / name, ignore_errors=True)
    # The last one is runc's draft of the first: left by a killed runc, it lets no other one start.
    for file in (f"{name}.pid", f"{name}.log", f".{name}.pid"):
        (runtime_root / file).unlink(missing_ok=True)


def _command(jail: Jail, log: Path, *arguments: str) -> list[str]:
    command = [str(jail.runtime.path), "--root", str(jail.runtime_root), "--log", str(log)]
    if jail.runtime.systemd:
        command.append("--systemd-cgroup")
    return [*command, *arguments]


def _scratch_directory(policy: Policy) -> str:
    """A directory to hide under the bundle: none below which something to be mounted lies."""
    for directory in SCRATCH_DIRECTORIES:
        if Path(directory).is_dir() and not _hides(directory, policy):
            return directory
    raise JailFailed(
        "No directory is free for the launch.",
        details=f"tried {', '.join(SCRATCH_DIRECTORIES)}: missing, or what is mounted lies there",
    )


def _hides(directory: str, policy: Policy) -> bool:
    """Whether something to be mounted lies below `directory`, whatever links lead there."""
    real = os.path.realpath(directory)
    return any(
        os.path.commonpath((place, os.path.realpath(bind.source))) == place
        for bind in policy.binds
        for place in (directory, real)
    )


def _tail(path: Path) -> str:
    with contextlib.suppress(OSError):
        return _shown(path.read_bytes()[-4096:])
    return ""


def _shown(data: bytes) -> str:
    """Foreign bytes as text in which no escape sequence reaches a terminal."""
    text = data.decode("ascii", "backslashreplace")
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text).strip()
