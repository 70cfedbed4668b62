"""Whose the folder of Boxfiles is, and each file in it: who can write them says what runs as you.

What others can change is not read. A sandbox that was made from it goes on as it was declared when
nobody else could.
"""

from __future__ import annotations

from pathlib import Path

from reconciler.boxfile.problems import printable
from reconciler.engine import place
from reconciler.engine.declaration import NotRead, watched_folder
from reconciler.engine.place import OthersDecide
from reconciler.errors import Refused

UNTRUSTED = "Untrusted"
"""The reason of a file that others can change."""

Groups = dict[int, bool]
"""Which groups are ours alone, as far as they were asked for."""


def check_folder(path: Path, groups: Groups) -> None:
    """See that no other user can change what is in a folder of Boxfiles. Raises Refused, OSError.

    `path` is absolute, with the links by which it was named.
    """
    try:
        place.check_folder(str(path), groups)
    except OthersDecide as error:
        raise Refused(
            f"Others can change the Boxfiles in {printable(str(path))}, and so what runs as you.",
            details=f"{printable(error.place)}: {error.why}",
            hint=_mend(error, "use a folder of your own"),
        ) from error


def check_file(folder: Path, relative: str, groups: Groups) -> None:
    """The same of one file in a folder that was checked. Raises NotRead, OSError."""
    try:
        place.check_file(str(folder), relative, groups)
    except OthersDecide as error:
        where = "" if error.place == f"{folder}/{relative}" else f"{printable(error.place)}: "
        mend = _mend(error, "use a file of your own")
        text = f"can be changed by others: {where}{error.why}; {mend}"
        raise NotRead(UNTRUSTED, text) from error


def check_source(path: Path) -> None:
    """The same of a Boxfile and its folder. Raises Refused, NotRead, OSError."""
    folder, groups = watched_folder(path), Groups()
    check_folder(folder, groups)
    check_file(folder, str(path.absolute().relative_to(folder)), groups)


def _mend(error: OthersDecide, otherwise: str) -> str:
    return f"look at what is in it, then {printable(error.mend)}" if error.mend else otherwise
