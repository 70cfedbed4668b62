"""Between box and the OCI runtime: enter namespaces, lay out a bundle, become the runtime.

Run as `python -I -S enter.py OPTIONS -- RUNTIME ARGS...` (see `userns.start_in_namespaces`), never
imported by box: `unshare(CLONE_NEWUSER)` fails in a process with threads. Standard library only,
nothing of the package, since `-S -I` leaves no path to it.

Options: `--parent PID` is box: when it ends, so do we and the runtime, which could start a VM that
nobody knows of any more; `--maps READY_FD GO_FD` makes a user namespace, tells READY_FD, and goes
on when GO_FD gives a byte (the maps are written then); `--scratch DIR` is a directory that a small
tmpfs hides, in a mount namespace of our own; `--config FD` the OCI config; `--owner UID GID` of the
container's root directory, as seen in the user namespace; `--fd N` (repeated) an inherited
descriptor, which the runtime finds at 3, 4, ... in the order given. Any error: one line to
`--errors FD`, else to stderr, which the container will inherit; exit 125.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys

CLONE_NEWNS = 0x00020000  # linux/sched.h
CLONE_NEWUSER = 0x10000000  # linux/sched.h
PR_SET_PDEATHSIG = 1  # linux/prctl.h
SIGKILL = 9  # asm-generic/signal.h
MS_NOSUID = 2  # linux/mount.h
MS_NODEV = 4  # linux/mount.h
MS_REC = 0x4000  # linux/mount.h
MS_PRIVATE = 1 << 18  # linux/mount.h
SCRATCH_OPTIONS = "mode=0755,size=1m,nr_inodes=1024"
FIRST_PRESERVED_FD = 3

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno), what)


def unshare(flags: int, what: str) -> None:
    """unshare(2)."""
    _check(_libc.unshare(flags), what)


def mount(source: str, target: str, fstype: str | None, flags: int, options: str | None) -> None:
    """mount(2)."""
    _check(
        _libc.mount(
            os.fsencode(source),
            os.fsencode(target),
            None if fstype is None else fstype.encode(),
            ctypes.c_ulong(flags),
            None if options is None else options.encode(),
        ),
        f"mount {target}",
    )


def enter_user_namespace(ready_fd: int, go_fd: int) -> None:
    """Become root of a user namespace whose maps the parent writes."""
    unshare(CLONE_NEWUSER, "make a user namespace")
    os.write(ready_fd, b"r")
    if os.read(go_fd, 1) != b"g":
        raise OSError(0, "the parent gave up", "user namespace maps")
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def lay_out_bundle(scratch: str, config_fd: int, owner: tuple[int, int]) -> None:
    """Hide `scratch` behind a tmpfs with config.json and an empty rootfs/ in it.

    The root directory's owner is the container's root: only it may make the mount points there.
    """
    unshare(CLONE_NEWNS, "make a mount namespace")
    mount("none", "/", None, MS_REC | MS_PRIVATE, None)
    mount("box", scratch, "tmpfs", MS_NOSUID | MS_NODEV, SCRATCH_OPTIONS)
    rootfs = f"{scratch}/rootfs"
    os.mkdir(rootfs, 0o755)
    os.chown(rootfs, *owner)
    with open(config_fd, "rb") as source, open(f"{scratch}/config.json", "xb") as copy:
        copy.write(source.read())


def end_with(parent: int) -> None:
    """Be killed when `parent` ends, before and after execve(2)."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "prctl PR_SET_PDEATHSIG")
    if os.getppid() != parent:
        raise OSError("box has ended")


def place_fds(fds: list[int]) -> None:
    """Put `fds` at 3, 4, ..., inheritable, and close all others but stdio."""
    beyond = FIRST_PRESERVED_FD + len(fds)
    # Out of the way first: a wanted descriptor may sit at another one's place.
    parked = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, beyond) for fd in fds]
    for place, fd in enumerate(parked, FIRST_PRESERVED_FD):
        os.dup2(fd, place, inheritable=True)
    os.closerange(beyond, os.sysconf("SC_OPEN_MAX"))


class Options:
    """The command line. A plain class: dataclasses take longer to import than all else here."""

    def __init__(self) -> None:
        self.parent = 0
        self.maps: tuple[int, int] | None = None
        self.scratch = ""
        self.config_fd = -1
        self.owner = (0, 0)
        self.fds: list[int] = []
        self.errors_fd = 2
        self.runtime: list[str] = []


def parse(arguments: list[str]) -> Options:
    """The options before `--`, and the runtime's command line after it."""
    options = Options()
    words = iter(arguments)
    for word in words:
        match word:
            case "--parent":
                options.parent = int(next(words))
            case "--maps":
                options.maps = (int(next(words)), int(next(words)))
            case "--scratch":
                options.scratch = next(words)
            case "--config":
                options.config_fd = int(next(words))
            case "--owner":
                options.owner = (int(next(words)), int(next(words)))
            case "--fd":
                options.fds.append(int(next(words)))
            case "--errors":
                options.errors_fd = int(next(words))
            case "--":
                options.runtime = list(words)
            case _:
                raise ValueError(f"unknown option {word}")
    return options


def become_runtime(options: Options) -> None:
    """Do what the options say, and exec the runtime."""
    os.umask(0o022)
    if options.maps is not None:
        enter_user_namespace(*options.maps)
    lay_out_bundle(options.scratch, options.config_fd, options.owner)
    if not os.access(options.runtime[0], os.X_OK):
        raise OSError(f"{options.runtime[0]} cannot be executed")
    place_fds(options.fds)
    # Last: a change of credentials would undo it (prctl(2)).
    if options.parent:
        end_with(options.parent)
    os.execv(options.runtime[0], options.runtime)  # noqa: S606 - what this is all for


if __name__ == "__main__":
    errors_fd = 2
    try:
        given = parse(sys.argv[1:])
        errors_fd = given.errors_fd
        become_runtime(given)
    except (OSError, ValueError, StopIteration, IndexError) as error:
        os.write(errors_fd, f"box: launcher: {error}\n".encode())
        sys.exit(125)
