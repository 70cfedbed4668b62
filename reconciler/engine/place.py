"""Where BOX_HOME is, and that it is private: as text, for commands that people wait for.

`home` says the same in paths; the module for those costs a short command a tenth of its time.
"""

from __future__ import annotations

import os
import stat

from reconciler.errors import Refused


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
    it is somebody else's or open to others, FileNotFoundError when there is none.
    """
    path = os.path.realpath(path)
    facts = os.stat(path)  # noqa: PTH116 - see above
    if facts.st_uid != os.getuid():
        raise Refused(f"{path} belongs to UID {facts.st_uid}, not to you.", hint="set BOX_HOME")
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise Refused(
            f"{path} can be entered by others; tokens and guests' memory are kept there.",
            hint=f"chmod 700 {path}",
        )
    return path
