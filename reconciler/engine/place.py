"""Where BOX_HOME is, and that it is private: as text, for commands that people wait for.

`home` says the same in paths; the module for those costs a short command a tenth of its time.
"""

from __future__ import annotations

import os
import stat

from reconciler.errors import Refused

_MOST_LINKS = 40  # path_resolution(7)
# linux/posix_acl_xattr.h: a version, then entries of tag and permissions (16 bits each) and an ID.
_ACL = "system.posix_acl_access"
_ACL_HEADER_BYTES = 4
_ACL_ENTRY_BYTES = 8
_ACL_USER = 0x02
_ACL_GROUP = 0x08
_ACL_WRITE = 0x02


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


class OthersDecide(Refused):
    """Others can change what a path leads to: `place`, for the reason `why`.

    `mend` is the command that takes it from them, "" when none alone would.
    """

    def __init__(self, place: str, why: str, mend: str = "") -> None:
        super().__init__(
            "Others can put another directory in the place of box's own.",
            details=f"{place}: {why}",
            hint=mend or "set BOX_HOME",
        )
        self.place = place
        self.why = why
        self.mend = mend


def check_way(path: str) -> None:
    """See that nobody but root and us decides what an absolute `path` leads to.

    Looks at each directory and link on the way, as far as there is one; not at what `path` itself
    is, unless it is a link. Raises OthersDecide, which names what others could exchange.
    """
    _walk("", path, {})


def check_folder(path: str, groups: dict[int, bool]) -> None:
    """See that nobody but root and us decides what is in the directory at an absolute `path`.

    In one like /tmp others can add what is theirs. `groups` keeps which groups are ours alone, for
    who asks many times at once. Raises OthersDecide, OSError.
    """
    _walk("", path, groups)
    _refuse_if_others_write(path, os.stat(path), groups)  # noqa: PTH116 - see above


def check_file(folder: str, relative: str, groups: dict[int, bool]) -> None:
    """The same of a file, or what is in a directory, below a `folder` that was checked.

    Raises OthersDecide, OSError.
    """
    _walk(folder, relative, groups)
    path = f"{folder}/{relative}"
    _refuse_if_others_write(path, os.stat(path), groups)  # noqa: PTH116 - see above


def _walk(place: str, way: str, groups: dict[int, bool]) -> None:
    left, links = way.split("/")[::-1], 0
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            place = place.rpartition("/")[0]
            continue
        _refuse_if_others_write(place or "/", os.lstat(place or "/"), groups)
        try:
            facts = os.lstat(f"{place}/{name}")
        except FileNotFoundError:
            return
        if facts.st_uid not in _trusted() and (left or stat.S_ISLNK(facts.st_mode)):
            raise OthersDecide(f"{place}/{name}", _belongs(facts))
        if not stat.S_ISLNK(facts.st_mode):
            place = f"{place}/{name}"
            continue
        links += 1
        if links > _MOST_LINKS:
            raise Refused(f"{way} has links that lead to one another.", hint="set BOX_HOME")
        target = os.readlink(f"{place}/{name}")  # noqa: PTH115 - see above
        place = "" if target.startswith("/") else place
        left += target.split("/")[::-1]


def _trusted() -> tuple[int, int]:
    return 0, os.getuid()


def _belongs(facts: os.stat_result) -> str:
    return f"it belongs to UID {facts.st_uid}, mode {stat.S_IMODE(facts.st_mode):04o}"


def _refuse_if_others_write(path: str, facts: os.stat_result, groups: dict[int, bool]) -> None:
    if facts.st_uid not in _trusted():
        raise OthersDecide(path, _belongs(facts))
    # In a directory like /tmp nobody moves what is not theirs.
    if stat.S_ISDIR(facts.st_mode) and facts.st_mode & stat.S_ISVTX:
        return
    everybody = bool(facts.st_mode & stat.S_IWOTH)
    # Where there is an ACL, this bit of the mode is its mask's.
    members = bool(facts.st_mode & stat.S_IWGRP)
    by_group = members and not _is_own_group(facts.st_gid, groups)
    by_acl = members and not by_group and _acl_names_others(path, groups)
    group = by_group or by_acl
    if everybody or group:
        from shlex import quote

        who = "everybody" if everybody else "its group" if by_group else "whom its ACL names"
        whom = ("g" if group else "") + ("o" if everybody else "")
        of = f"UID {facts.st_uid}, GID {facts.st_gid}, mode {stat.S_IMODE(facts.st_mode):04o}"
        why = f"{who} can write it ({of})"
        raise OthersDecide(path, why, f"chmod {whom}-w {quote(path)}")


def _acl_names_others(path: str, groups: dict[int, bool]) -> bool:
    """Whether an access ACL lets a user or group that it names write: acl(5), xattr(7)."""
    try:
        acl = os.getxattr(path, _ACL)
    except OSError:
        return False
    for at in range(_ACL_HEADER_BYTES, len(acl), _ACL_ENTRY_BYTES):
        tag, permissions = acl[at], acl[at + 2]
        who = int.from_bytes(acl[at + 4 : at + 8], "little")
        if not permissions & _ACL_WRITE:
            continue
        if tag == _ACL_USER and who not in _trusted():
            return True
        if tag == _ACL_GROUP and not _is_own_group(who, groups):
            return True
    return False


def _is_own_group(gid: int, groups: dict[int, bool]) -> bool:
    if gid not in groups:
        groups[gid] = _has_no_other_member(gid)
    return groups[gid]


def _has_no_other_member(gid: int) -> bool:
    """Whether a group is root's and ours: many hosts give each user one, and umask 002."""
    import grp
    import pwd

    accounts = [each for each in pwd.getpwall() if each.pw_gid == gid]
    try:
        names = {each.pw_name for each in accounts} | set(grp.getgrgid(gid).gr_mem)
        return {pwd.getpwnam(name).pw_uid for name in names} <= set(_trusted())
    except KeyError:
        return False
