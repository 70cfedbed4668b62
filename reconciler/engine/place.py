"""Where BOX_HOME is, and that it is private: as text, for commands that people wait for.

`home` says the same in paths; the module for those costs a short command a tenth of its time.
"""

from __future__ import annotations

import os
import stat

from reconciler.errors import Refused

_MOST_LINKS = 40  # path_resolution(7)


def home_place() -> str:
    """BOX_HOME, else ~/.box; it need not exist. Raises Refused for a relative one."""
    given = os.environ.get("BOX_HOME")
    # Path.home() is this, too.
    return checked(given or os.path.join(os.path.expanduser("~"), ".box"))  # noqa: PTH111, PTH118


def checked(path: str) -> str:
    """The path unchanged, if a home can be there. Raises Refused."""
    if not path.startswith("/"):
        raise Refused(f"BOX_HOME is {path!r}, which is not an absolute path.")
    try:
        path.encode()
    except UnicodeEncodeError as error:
        # The OCI runtime's configuration is JSON, which has no words for other bytes.
        raise Refused(f"BOX_HOME is {path!a}, which is not UTF-8.") from error
    return path


def private_place(path: str) -> str:
    """The one true name of the home at `path`, made sure to be private to its owner.

    Cgroups are named after it, and the launch hides a directory of the host. Raises Refused when
    it is somebody else's or open to others, or others can put another in its place;
    FileNotFoundError when there is none.
    """
    check_way(path)
    path = os.path.realpath(path)
    facts = os.stat(path)  # noqa: PTH116 - see above
    if facts.st_uid != os.getuid():
        raise Refused(f"{path} belongs to UID {facts.st_uid}, not to you.", hint="set BOX_HOME")
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise Refused(
            f"{path} can be entered by others; tokens and guests' memory are kept there.",
            hint=f"chmod 700 {path}" if _is_a_home(path) else "set BOX_HOME to a new directory",
        )
    return path


def _is_a_home(path: str) -> bool:
    """Whether it holds what a home does, or nothing: not /, or /tmp, or a user's own."""
    inside = os.listdir(path)  # noqa: PTH208 - see above
    return not inside or "sandboxes" in inside


def check_way(path: str) -> None:
    """See that nobody but root and us decides what an absolute `path` leads to.

    Looks at each directory and link on the way, as far as there is one; not at what `path` itself
    is, unless it is a link. Raises Refused, which names what others could exchange.
    """
    trusted = {0, os.getuid()}
    left, place, links = path.split("/")[::-1], "", 0
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            place = place.rpartition("/")[0]
            continue
        _refuse_if_others_write(place or "/", trusted)
        try:
            facts = os.lstat(f"{place}/{name}")
        except FileNotFoundError:
            return
        if facts.st_uid not in trusted and (left or stat.S_ISLNK(facts.st_mode)):
            raise _others(f"{place}/{name}", f"it belongs to UID {facts.st_uid}")
        if not stat.S_ISLNK(facts.st_mode):
            place = f"{place}/{name}"
            continue
        links += 1
        if links > _MOST_LINKS:
            raise Refused(f"{path} has links that lead to one another.", hint="set BOX_HOME")
        target = os.readlink(f"{place}/{name}")  # noqa: PTH115 - see above
        place = "" if target.startswith("/") else place
        left += target.split("/")[::-1]


def _refuse_if_others_write(directory: str, trusted: set[int]) -> None:
    facts = os.lstat(directory)
    if facts.st_uid not in trusted:
        raise _others(directory, f"it belongs to UID {facts.st_uid}")
    # In a directory like /tmp nobody moves what is not theirs.
    if facts.st_mode & stat.S_ISVTX:
        return
    if facts.st_mode & stat.S_IWOTH:
        raise _others(directory, "everybody can write it", hint=f"chmod o-w {directory}")
    if facts.st_mode & stat.S_IWGRP and not _is_own_group(facts.st_gid):
        raise _others(directory, "its group can write it", hint=f"chmod g-w {directory}")


def _is_own_group(gid: int) -> bool:
    """Whether the group has no member but us: many hosts give each user one, and umask 002."""
    import grp
    import pwd

    uid = os.getuid()
    accounts = [each for each in pwd.getpwall() if each.pw_gid == gid]
    try:
        names = {each.pw_name for each in accounts} | set(grp.getgrgid(gid).gr_mem)
        return {pwd.getpwnam(name).pw_uid for name in names} <= {uid}
    except KeyError:
        return False


def _others(place: str, why: str, hint: str = "set BOX_HOME") -> Refused:
    return Refused(
        "Others can put another directory in the place of box's own.",
        details=f"{place}: {why}",
        hint=hint,
    )
