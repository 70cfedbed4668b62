"""The name of a sandbox, which is the name of its file: `web.Boxfile` or `web/Boxfile`."""

from __future__ import annotations

import re

from reconciler.codes import Code
from reconciler.errors import BoxError

# One DNS label (RFC 1123) in lower case: it becomes the guest's hostname and a file name, and two
# names must not differ only by case.
NAME_PATTERN = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
# Words that commands, paths or messages use for something else than one sandbox.
RESERVED_NAMES = frozenset({"all", "box", "boxd", "controller", "host", "localhost", "none"})

SUFFIX = ".Boxfile"
INNER_NAME = "Boxfile"


class InvalidName(BoxError):
    """A text that cannot be the name of a sandbox."""

    code = Code.INVALID_NAME


def check_name(name: str) -> str:
    """Return the name unchanged, or raise InvalidName with the rule it breaks."""
    if re.fullmatch(NAME_PATTERN, name) and name not in RESERVED_NAMES:
        return name
    from reconciler.boxfile.problems import shown

    if not re.fullmatch(NAME_PATTERN, name):
        raise InvalidName(
            f"{shown(name)} cannot be the name of a sandbox",
            details="A name is 1 to 63 characters: a-z, 0-9 and -, with no - at either end.",
        )
    raise InvalidName(
        f"{shown(name)} is a reserved name",
        details="Reserved: " + ", ".join(sorted(RESERVED_NAMES)) + ".",
    )


def name_of(relative_path: str) -> str | None:
    """Return the sandbox's name for a path below the watched folder, None if it is no Boxfile.

    Hidden files, editors' backups and deeper paths are no Boxfiles. The name is not checked.
    """
    folder, _, last = relative_path.rpartition("/")
    if relative_path.startswith(".") or "/" in folder:
        return None
    if folder:
        return folder if last == INNER_NAME else None
    return last.removesuffix(SUFFIX) if last.endswith(SUFFIX) else None
