"""The same attacks on an ordinary user, who may share a group with others."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import short_folder
from tests.linux.ordinary_user import OrdinaryUser, made
from tests.security.strangers import STRANGER, stranger

pytestmark = pytest.mark.root

LOOK = """
    import sys
    from pathlib import Path
    from reconciler.engine import home, slots
    from reconciler.errors import Refused
    for path in {paths!r}:
        try:
            print(home.private_home(Path(path)) == Path(path).resolve())
        except Refused as error:
            print(" ".join(str(error).split()))
    print(oct(slots.ledger().stat().st_mode & 0o777))
"""


TRUST = """
    import os
    from pathlib import Path
    from reconciler.engine import trust
    from reconciler.errors import BoxError
    os.chdir("/")
    for path in {paths!r}:
        try:
            trust.check_source(Path(path))
            print("read")
        except BoxError as error:
            print(" ".join(str(error).split()))
"""


@pytest.fixture(scope="module")
def user() -> Iterator[OrdinaryUser]:
    with made() as it:
        yield it


@pytest.fixture
def shared() -> Iterator[Path]:
    path = short_folder()
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


def looked(user: OrdinaryUser, *paths: Path) -> list[str]:
    return user.run(LOOK.format(paths=list(map(str, paths)))).splitlines()


def own(user: OrdinaryUser, path: Path, mode: str, group: int | None = None) -> Path:
    """A directory of the user's."""
    path.mkdir()
    subprocess.run(["chown", f"{user.uid}:{group or user.gid}", path], check=True, timeout=60)
    subprocess.run(["chmod", mode, path], check=True, timeout=60)
    return path


def test_a_users_home_is_the_users_in_their_own_directories(
    user: OrdinaryUser, shared: Path
) -> None:
    # Many hosts give each user a group and the umask 002.
    above = own(user, shared / "own", "775")
    assert looked(user, user.home / ".box", above / "box", shared / "box") == [
        *["True"] * 3,
        "0o700",
    ]


def test_a_users_home_is_refused_where_others_could_exchange_it(
    user: OrdinaryUser, shared: Path
) -> None:
    wide = own(user, shared / "wide", "777")
    team = own(user, shared / "team", "775", group=STRANGER)
    stranger("mkdir", "-m", "755", str(shared / "theirs"))
    secrets = own(user, shared / "secrets", "700")
    stranger("ln", "-s", str(secrets), str(shared / "link"))
    found = looked(user, wide / "box", team / "box", shared / "theirs/box", shared / "link")
    whys = ["everybody can write", "its group can write", "belongs to UID", "belongs to UID"]
    assert [why in said for why, said in zip(whys, found, strict=False)] == [True] * 4
    assert list(secrets.iterdir()) == []


def test_a_group_with_one_more_member_is_not_the_users_alone(
    user: OrdinaryUser, shared: Path
) -> None:
    above = own(user, shared / "own", "775")
    subprocess.run(["usermod", "-aG", user.name, "nobody"], check=True, timeout=60)
    try:
        assert "its group can write" in looked(user, above / "box")[0]
    finally:
        subprocess.run(["gpasswd", "-d", "nobody", user.name], check=True, timeout=60)
    assert looked(user, above / "box")[0] == "True"


def boxfile(user: OrdinaryUser, folder: Path, mode: str, owner: int | None = None) -> Path:
    path = folder / "web.Boxfile"
    path.write_text("base: builtin:busybox\n")
    owner = user.uid if owner is None else owner
    subprocess.run(["chown", f"{owner}:{owner or user.gid}", path], check=True, timeout=60)
    subprocess.run(["chmod", mode, path], check=True, timeout=60)
    return path


def trusted(user: OrdinaryUser, *paths: Path) -> list[str]:
    return user.run(TRUST.format(paths=list(map(str, paths)))).splitlines()


def test_boxfiles_of_a_checkout_with_umask_002_are_the_users(
    user: OrdinaryUser, shared: Path
) -> None:
    checkout = own(user, shared / "checkout", "775")
    deep = own(user, checkout / "desired", "2775")
    roots = shared / "roots"
    roots.mkdir()
    roots.chmod(0o755)
    paths = [boxfile(user, deep, "664"), boxfile(user, roots, "644", owner=0)]
    assert trusted(user, *paths) == ["read", "read"]
    # With one more member in the group it is another matter.
    subprocess.run(["usermod", "-aG", user.name, "nobody"], check=True, timeout=60)
    try:
        said = trusted(user, paths[0])[0]
    finally:
        subprocess.run(["gpasswd", "-d", "nobody", user.name], check=True, timeout=60)
    assert f"{checkout}: its group can write it (UID {user.uid}, GID {user.gid}, mode 0775)" in said
    assert f"chmod g-w {checkout}" in said


def test_boxfiles_that_another_user_can_change_are_not_read(
    user: OrdinaryUser, shared: Path
) -> None:
    wide = boxfile(user, own(user, shared / "wide", "777"), "644")
    stranger("mv", str(wide), f"{wide}.gone")
    stranger("cp", f"{wide}.gone", str(wide))
    team = boxfile(user, own(user, shared / "team", "775", group=STRANGER), "644")
    theirs = boxfile(user, own(user, shared / "theirs", "755"), "644", owner=STRANGER)
    open_file = boxfile(user, own(user, shared / "open", "755"), "666")
    stranger("sh", "-c", 'echo "cpus: 64" >>"$1"', "sh", str(open_file))
    sticky = boxfile(user, own(user, shared / "sticky", "1777"), "644", owner=STRANGER)
    whys = [
        f"{wide.parent}: everybody can write it",
        f"{team.parent}: its group can write it",
        f"can be changed by others: it belongs to UID {STRANGER}",
        "can be changed by others: everybody can write it",
        f"can be changed by others: it belongs to UID {STRANGER}",
    ]
    found = trusted(user, wide, team, theirs, open_file, sticky)
    assert [why in said for why, said in zip(whys, found, strict=True)] == [True] * len(whys)
