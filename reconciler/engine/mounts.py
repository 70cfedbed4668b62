"""Whether a folder or file of the host may be mounted into a sandbox: opened, then judged.

Nothing is judged by its name. The source is opened once, and what it is, contains and lies inside
is asked of the descriptor, which is what a backend then mounts.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from reconciler.engine.grounds import (
    KERNEL_FILE_SYSTEMS,
    OWN_NOUNS,
    SECRET_NOUNS,
    guarded_paths,
)
from reconciler.errors import BoxError, Missing, Refused, as_box_error
from reconciler.linux import location, paths, tree
from reconciler.linux.location import Identity, Location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.engine.grounds import Grounds
    from reconciler.linux.paths import Opened

SEARCHED_ENTRIES = 50_000
"""So many files below a source are looked at; a larger tree has to be called risky."""

_SEARCHED_SECRETS = 2000  # in each folder of secrets
_UNSEEN = "which no sandbox may see"


class UnfitSource(Refused):
    """A mount's source may not be mounted; `why` is the sentence without its subject."""

    def __init__(self, host: str, why: str) -> None:
        self.why = _printable(why)
        super().__init__(f"The mount source {host!a} {self.why}.")


class MissingSource(Missing):
    """A mount's source does not exist; `why` is the sentence without its subject."""

    def __init__(self, host: str, why: str) -> None:
        self.why = _printable(why)
        super().__init__(f"The mount source {host!a} {self.why}.")


@dataclass(frozen=True, slots=True)
class Source:
    """A mount of a Boxfile, as far as the host goes; `folder` is the Boxfile's."""

    host: str
    folder: Path
    follow_symlink: bool = False
    risky: bool = False
    writable: bool = False


@dataclass(frozen=True, slots=True)
class Resolved:
    """A source that may be mounted, by way of /proc/self/fd/`fd`: its holder closes it.

    `path` is for messages; `device` and `inode` are stat(2)'s, to be found again in the mount.
    """

    fd: int
    path: str
    device: int
    inode: int
    is_directory: bool

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        os.close(self.fd)


def refusal(source: Source, grounds: Grounds) -> str | None:
    """Why `source` cannot be mounted, to be read after its name; None when it can."""
    try:
        with resolve(source, grounds):
            return None
    except (UnfitSource, MissingSource) as error:
        return error.why


def resolve(source: Source, grounds: Grounds) -> Resolved:
    """Open `source` and judge what was opened. Raises UnfitSource, MissingSource, nothing else."""
    with _told(source.host):
        path = _absolute(source, grounds)
        opened = paths.open_following(path) if source.follow_symlink else paths.open_unlinked(path)
        try:
            _judge(opened, source, grounds)
        except BaseException:
            os.close(opened.fd)
            raise
    identity = opened.identity
    is_directory = stat.S_ISDIR(opened.mode)
    return Resolved(opened.fd, opened.location.path, identity.device, identity.inode, is_directory)


@contextlib.contextmanager
def _told(host: str) -> Iterator[None]:
    """Whatever goes wrong, as a sentence about the source."""
    try:
        yield
    except (UnfitSource, MissingSource):
        raise
    except paths.LinkOnPath as error:
        raise UnfitSource(
            host,
            f"passes the symbolic link {error.path}: name what it leads to, or set "
            "`follow_symlink: true`",
        ) from error
    except paths.Unreachable as error:
        raise UnfitSource(
            host, "leads out of the files that box sees, or was just moved"
        ) from error
    except FileNotFoundError as error:
        raise MissingSource(host, f"does not exist: there is no {error.filename}") from error
    except (BoxError, OSError, ValueError) as error:
        raise UnfitSource(host, f"cannot be used: {as_box_error(error).brief}") from error


def _absolute(source: Source, grounds: Grounds) -> str:
    """The path to open; links in a home's or the Boxfile's own path are the user's."""
    host = source.host
    if ".." in host.split("/"):
        raise UnfitSource(host, "contains `..`: name the path without it")
    if host.startswith("/"):
        return host
    if host != "~" and not host.startswith("~/"):
        return f"{os.path.realpath(source.folder)}/{host}"
    if not grounds.homes:
        raise UnfitSource(host, "starts with ~, but your account has no home: name the whole path")
    return f"{os.path.realpath(grounds.homes[0])}/{host[2:]}"


def _judge(opened: Opened, source: Source, grounds: Grounds) -> None:
    guarded = _guarded(source, grounds)
    whole = _whole(opened, grounds)
    for noun, place in guarded:
        relation = opened.location.relation(place)
        # What / and the home contain goes with them, once `risky` says so: to be read. Who can
        # write its own Boxfile, or box's files, is not confined at all.
        own = source.writable and noun in OWN_NOUNS
        if relation is not None and (own or not (whole and relation == "contains")):
            raise UnfitSource(source.host, _sentence(relation, noun, place))
    _refuse_kernel_file_systems(opened, source.host, whole)
    if whole and not source.risky:
        raise UnfitSource(
            source.host,
            f"is {whole}, with every secret and control socket in it: set `risky: true` to hand "
            "all of that over",
        )
    if stat.S_ISDIR(opened.mode):
        if not whole:
            _refuse_contents(opened, source, guarded)
    elif not stat.S_ISREG(opened.mode):
        raise UnfitSource(source.host, "is neither a folder nor a regular file")
    elif hidden := _secrets(guarded).get(opened.identity):
        raise UnfitSource(source.host, f"is one of {hidden} by another name, {_UNSEEN}")


def _guarded(source: Source, grounds: Grounds) -> tuple[tuple[str, Location], ...]:
    mounts = location.read_mounts()
    found = [
        (noun, place)
        for noun, path in guarded_paths(grounds, source.folder)
        for place in location.locate(str(path), mounts)
    ]
    # A message had better name something that is there.
    return tuple(sorted(found, key=lambda each: each[1].identity is None))


def _sentence(relation: str, noun: str, place: Location) -> str:
    if relation != "contains":
        return f"{relation} {noun} ({place.path}), {_UNSEEN}"
    what = noun if place.identity is not None else f"the place of {noun}"
    return f"contains {what} ({place.path}), {_UNSEEN}: mount a smaller part"


def _whole(opened: Opened, grounds: Grounds) -> str | None:
    """What `risky` is for, when the source is that: by identity, under whatever name."""
    names = [("the whole file system of this host", Path("/"))]
    names += [("your home folder as a whole", home) for home in grounds.homes]
    for noun, path in names:
        with contextlib.suppress(OSError):
            if location.identity_of(path.stat()) == opened.identity:
                return noun
    return None


def _refuse_kernel_file_systems(opened: Opened, host: str, whole: str | None) -> None:
    if opened.mount.fstype in KERNEL_FILE_SYSTEMS:
        mount, relation = opened.mount, "is on"
    else:
        found = [each for each in opened.inner_mounts if each.fstype in KERNEL_FILE_SYSTEMS]
        if not found or whole:
            return
        mount, relation = found[0], "contains"
    raise UnfitSource(
        host,
        f"{relation} a file system of the kernel ({mount.fstype} at {mount.target}), {_UNSEEN}",
    )


def _refuse_contents(
    opened: Opened, source: Source, guarded: tuple[tuple[str, Location], ...]
) -> None:
    """Look into the source for sockets, and for hard links to what is guarded."""
    listening = None if source.risky else next(_listening_in(opened), None)
    if listening is not None:
        raise UnfitSource(source.host, _socket(listening))
    nouns = {place.identity: noun for noun, place in guarded if place.identity is not None}
    nouns = {**_secrets(guarded), **nouns}
    try:
        with contextlib.closing(tree.search(opened.fd, at_most=SEARCHED_ENTRIES)) as search:
            for found in search:
                path = f"{opened.location.path}/{found.path}"
                if found.identity in nouns:
                    noun = nouns[found.identity]
                    raise UnfitSource(source.host, f"contains {noun}, also named {path}, {_UNSEEN}")
                if found.is_socket and not source.risky:
                    raise UnfitSource(source.host, _socket(path))
    except tree.Unsearchable as error:
        if not source.risky:
            raise UnfitSource(
                source.host,
                f"cannot be searched for sockets, because {error.reason}: mount a smaller part, or "
                "set `risky: true`",
            ) from error


def _secrets(guarded: tuple[tuple[str, Location], ...]) -> dict[Identity, str]:
    """What lies in the guarded folders of secrets: a hard link to it is the same file."""
    found = {}
    for noun, place in guarded:
        if noun not in SECRET_NOUNS or place.identity is None:
            continue
        with contextlib.suppress(OSError, tree.Unsearchable):
            fd = os.open(place.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                for each in tree.search(fd, at_most=_SEARCHED_SECRETS):
                    if each.identity is not None:
                        found[each.identity] = noun
            finally:
                os.close(fd)
    return found


def _listening_in(opened: Opened) -> Iterator[str]:
    """The sockets in the source that the kernel says are listened at, on other mounts too."""
    mounts = location.read_mounts()
    for bound in tree.parse_listening(Path("/proc/self/net/unix").read_bytes()):
        for place in location.locate(bound, mounts):
            if opened.location.relation(place) and Path(place.path).is_socket():
                yield place.path


def _socket(path: str) -> str:
    return (
        f"contains the socket {path}, which leads the sandbox to a program of this host: "
        "set `risky: true` to allow that"
    )


def _printable(text: str) -> str:
    """Names of files may hold anything, and a guest may have chosen them."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
