from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from reconciler.boxfile.names import InvalidName
from reconciler.engine.home import home_path, open_home, private_home, sandbox_directory
from reconciler.errors import BoxError, Refused


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A BOX_HOME that does not exist yet."""
    path = tmp_path / "a" / "home"
    monkeypatch.setenv("BOX_HOME", str(path))
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_home_is_made_private_with_all_above_it(named: Path) -> None:
    os.umask(0o000)
    assert open_home() == named
    assert mode(named) == mode(named.parent) | 0o700 == 0o700 | mode(named.parent)
    assert all(mode(each) == 0o700 for each in named.iterdir())
    assert {each.name for each in named.iterdir()} >= {"run", "sandboxes", "runtime"}
    assert open_home() == named


def test_what_is_made_afterwards_is_private_too(named: Path) -> None:
    os.umask(0o000)
    (open_home() / "file").write_text("")
    assert mode(named / "file") == 0o600


def test_a_home_that_others_can_enter_is_refused(named: Path) -> None:
    named.mkdir(parents=True)
    named.chmod(0o750)
    with pytest.raises(Refused, match="entered by others") as caught:
        open_home()
    assert caught.value.hint == f"chmod 700 {named}"


def test_it_is_never_advised_to_close_a_directory_that_holds_other_things(named: Path) -> None:
    (named / "Documents").mkdir(parents=True)
    named.chmod(0o755)
    with pytest.raises(Refused, match="entered by others") as caught:
        open_home()
    assert caught.value.hint == "set BOX_HOME to a new directory"
    (named / "sandboxes").mkdir()
    with pytest.raises(Refused) as caught:
        open_home()
    assert caught.value.hint == f"chmod 700 {named}"


@pytest.mark.root
def test_somebody_elses_home_is_refused(named: Path) -> None:
    named.mkdir(parents=True, mode=0o700)
    os.chown(named, 12_345, 12_345)
    with pytest.raises(Refused, match="UID 12345"):
        open_home()


@pytest.mark.parametrize("under", ["", "/home"])
def test_a_home_that_cannot_be_made_is_told_with_what_to_do(named: Path, under: str) -> None:
    named.parent.mkdir()
    named.write_text("")
    with pytest.raises(BoxError, match=f"^{named}") as caught:
        private_home(Path(f"{named}{under}"))
    assert caught.value.hint == "set BOX_HOME to a directory that you can write"


@pytest.mark.parametrize("value", ["box", "./box", "~/box"])
def test_a_relative_home_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("BOX_HOME", value)
    with pytest.raises(Refused, match="not an absolute path"):
        home_path()


def test_a_home_that_is_not_utf8_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BOX_HOME", str(tmp_path) + "/\udcff")
    with pytest.raises(Refused, match="not UTF-8") as caught:
        open_home()
    str(caught.value).encode("ascii")
    assert list(tmp_path.iterdir()) == []


def test_without_box_home_it_is_in_the_users_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in ("", None):
        if given is None:
            monkeypatch.delenv("BOX_HOME")
        else:
            monkeypatch.setenv("BOX_HOME", given)
        assert home_path() == tmp_path / ".box"


def test_a_home_has_one_name_whatever_links_lead_to_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setenv("BOX_HOME", str(tmp_path / "link"))
    assert open_home() == tmp_path / "real"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "A", "a.b", "-a", "a\n"])
def test_a_sandbox_has_no_directory_elsewhere(named: Path, name: str) -> None:
    home = open_home()
    with pytest.raises(InvalidName):
        sandbox_directory(home, name)
    assert list((home / "sandboxes").iterdir()) == []
