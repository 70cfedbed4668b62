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
