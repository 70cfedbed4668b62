"""What another user puts in box's way: nothing of it is entered, read or waited for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.engine import place, slots
from reconciler.engine.home import open_home, private_home
from reconciler.errors import BoxError, Refused
from tests.conftest import short_folder
from tests.live import BOX
from tests.security.strangers import STRANGER, run_as, stranger

pytestmark = pytest.mark.root


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory like /tmp, in /tmp, where links of others are followed by who does not look."""
    path = short_folder()
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A private directory of ours, with what a sweep would take away."""
    path = tmp_path / "secrets"
    path.mkdir(mode=0o700)
    (path / ".old.tmp").write_text("kept")
    os.utime(path / ".old.tmp", (0, 0))
    return path


def box(home: Path, *arguments: str) -> str:
    """What box says about a home that it must refuse."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(home.parent)}
    environment |= {"BOX_HOME": str(home), "BOX_DESIRED": str(home.parent)}
    words = [f"{name}={value}" for name, value in environment.items()]
    done = run_as(0, "env", "-i", *words, str(BOX), *arguments, status=None)
    assert done.returncode not in (0, None)
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_link_of_somebody_elses_to_our_own_private_directory_is_not_entered(
    shared: Path, secrets: Path
) -> None:
    stranger("ln", "-s", str(secrets), str(shared / "box"))
    # Who only asks whose it is and whether it is private would go in.
    facts = (shared / "box").stat()
    assert (facts.st_uid, facts.st_mode & 0o077) == (os.getuid(), 0)
    for words in (["status"], ["up", "web"], ["exec", "web", "--", "true"]):
        assert "Others can put another directory" in box(shared / "box", *words)
    with pytest.raises(Refused, match=f"UID {STRANGER}"):
        private_home(shared / "box")
    assert [each.name for each in secrets.iterdir()] == [".old.tmp"]


def test_a_link_of_somebody_elses_to_nowhere_is_not_filled(shared: Path, tmp_path: Path) -> None:
    stranger("ln", "-s", str(tmp_path / "new"), str(shared / "box"))
    stranger("mkdir", "-m", "777", str(shared / "way"))
    for home in (shared / "box", shared / "box/home", shared / "way/home"):
        with pytest.raises(Refused, match=f"UID {STRANGER}"):
            private_home(home)
    assert not (tmp_path / "new").exists()
    assert list((shared / "way").iterdir()) == []


def test_a_link_of_our_own_is_followed(shared: Path, tmp_path: Path) -> None:
    (shared / "box").symlink_to(tmp_path / "home")
    (tmp_path / "home").mkdir(mode=0o700)
    assert private_home(shared / "box") == tmp_path / "home"


def test_links_that_lead_to_one_another_end(shared: Path) -> None:
    (shared / "a").symlink_to("b")
    (shared / "b").symlink_to("a")
    with pytest.raises(Refused, match="lead to one another"):
        place.check_way(str(shared / "a"))


@pytest.mark.parametrize("kind", ["directory", "file", "fifo", "socket"])
def test_whatever_lies_where_the_home_should_be_is_refused_at_once(shared: Path, kind: str) -> None:
    home = shared / "box"
    make = {
        "directory": ["mkdir", "-m", "700", str(home)],
        "file": ["touch", str(home)],
        "fifo": ["mkfifo", str(home)],
        "socket": [
            *("/usr/bin/python3", "-c"),
            f"import socket; socket.socket(socket.AF_UNIX).bind({str(home)!r})",
        ],
    }
    stranger(*make[kind])
    assert str(home) in box(home, "status")


@pytest.mark.parametrize(
    ("mode", "gid", "why"),
    [(0o777, 0, "everybody can write it"), (0o775, STRANGER, "its group can write it")],
)
def test_a_home_in_a_directory_that_others_can_write_is_refused(
    tmp_path: Path, mode: int, gid: int, why: str
) -> None:
    above = tmp_path / "above"
    (above / "home").mkdir(mode=0o700, parents=True)
    os.chown(above, 0, gid)
    above.chmod(mode)
    with pytest.raises(Refused) as caught:
        place.private_place(str(above / "home"))
    assert why in str(caught.value)
    above.chmod(0o1777)
    assert place.private_place(str(above / "home")) == str(above / "home")


def test_what_another_user_owns_on_the_way_is_named(tmp_path: Path) -> None:
    above = tmp_path / "above"
    (above / "home").mkdir(mode=0o700, parents=True)
    os.chown(above, STRANGER, STRANGER)
    with pytest.raises(Refused, match=f"{above}: it belongs to UID {STRANGER}"):
        place.private_place(str(above / "home"))


def test_who_can_write_the_directory_above_really_exchanges_a_private_home(shared: Path) -> None:
    above = shared / "above"
    (above / "home").mkdir(mode=0o700, parents=True)
    (above / "other").mkdir(mode=0o700)
    (above / "other" / "forged").touch()
    above.chmod(0o777)
    stranger("mv", "-T", str(above / "home"), str(above / "away"))
    stranger("mv", "-T", str(above / "other"), str(above / "home"))
    assert (above / "home" / "forged").exists()
    with pytest.raises(Refused, match="Others can put another directory"):
        place.private_place(str(above / "home"))


def test_a_home_is_made_with_nothing_above_it_that_others_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.umask(0)
    private_home(tmp_path / "a" / "b" / "home")
    monkeypatch.setenv("BOX_HOME", str(tmp_path / "c" / "d" / "home"))
    os.umask(0)
    open_home()
    for each in ("a", "a/b", "c", "c/d"):
        assert (tmp_path / each).stat().st_mode & 0o022 == 0, each


def test_a_users_own_private_group_is_no_stranger(shared: Path) -> None:
    home = shared / "above" / "home"
    home.mkdir(mode=0o700, parents=True)
    (shared / "above").chmod(0o775)
    # Group 0 is root's alone, as the group of its own that many hosts give each user.
    assert place.private_place(str(home)) == str(home)


def test_the_ledger_of_slots_is_nobodys_but_its_users() -> None:
    path = slots.ledger()
    assert path.stat().st_uid == os.getuid()
    assert path.stat().st_mode & 0o777 == 0o700
    assert path == Path(place.private_place(str(path)))
    assert stranger("ls", str(path), status=None).returncode != 0


def test_what_is_refused_is_an_error_of_ours_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "above").mkdir()
    (tmp_path / "above").chmod(0o777)
    with pytest.raises(BoxError) as caught:
        place.check_way(str(tmp_path / "above" / "home"))
    assert caught.value.hint == f"chmod o-w {tmp_path / 'above'}"
