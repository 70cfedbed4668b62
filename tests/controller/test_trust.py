"""A folder of Boxfiles that others can change says nothing; what runs of it goes on untouched."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.controller.desired import Order
from reconciler.controller.entry import Declared, Faulty, FileState
from reconciler.controller.folder import Folder
from reconciler.controller.once import settled_survey
from reconciler.errors import Refused
from reconciler.surfaces import declared
from tests.conftest import short_folder
from tests.controller.sleepers import GOOD, Sleepers, put, settle, until
from tests.controller.surveying import look, surveyor_of, sync, three, wishes
from tests.controller.watching import running, watching
from tests.security.strangers import STRANGER, stranger

pytestmark = pytest.mark.root


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder in a place that every user can reach."""
    path = short_folder()
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def folder(shared: Path) -> Path:
    path = shared / "desired"
    path.mkdir()
    path.chmod(0o755)
    return path


def declare_as_stranger(path: Path) -> None:
    stranger("sh", "-c", 'printf "$1" >"$2"', "sh", GOOD, str(path))
    settle(path)


def state(folder: Path | Folder, name: str = "web") -> FileState:
    folder = folder if isinstance(folder, Folder) else Folder(folder)
    until(lambda: not folder.scan().unsettled)
    return next(each.state for each in folder.scan().entries if each.name == name)


def fault(folder: Path, name: str = "web") -> str:
    found = state(folder, name)
    assert isinstance(found, Faulty)
    assert found.reason == "Untrusted"
    return found.message


@pytest.mark.parametrize(
    ("mode", "gid", "why", "mend"),
    [
        (0o777, 0, "everybody can write it", "chmod o-w"),
        (0o775, STRANGER, "its group can write it", "chmod g-w"),
        (0o777, STRANGER, "everybody can write it", "chmod go-w"),
    ],
)
def test_what_another_user_declares_in_it_does_not_run(
    engine: Sleepers, folder: Path, mode: int, gid: int, why: str, mend: str
) -> None:
    put(folder / "ours.Boxfile")
    os.chown(folder, 0, gid)
    folder.chmod(mode)
    if mode & 0o002:
        declare_as_stranger(folder / "evil.Boxfile")
    survey = sync(engine, folder)
    assert (survey.wishes, engine.names()) == ((), ())
    (said,) = survey.conditions
    assert (said.type, said.status, said.reason) == ("SourceAvailable", "False", "SourceUntrusted")
    assert f"{folder}: {why} (UID 0, GID {gid}, mode 0{mode:o})" in said.message
    assert f"{mend} {folder}" in said.message
    folder.chmod(0o755)
    assert set(wishes(sync(engine, folder))) >= {"ours"}
    assert engine.names() == ("ours",)


def test_nothing_is_destroyed_stopped_or_changed_because_others_can_write_it(
    engine: Sleepers, folder: Path
) -> None:
    three(engine, folder)
    pids = [engine.pid(name) for name in "abc"]
    folder.chmod(0o777)
    stranger("rm", "-f", str(folder / "a.Boxfile"), str(folder / "b.Boxfile"))
    declare_as_stranger(folder / "b.Boxfile")
    declare_as_stranger(folder / "d.Boxfile")
    for _ in range(2):
        survey = sync(engine, folder)
        assert {name: wish.order for name, wish in wishes(survey).items()} == dict.fromkeys(
            "abc", Order.HOLD_TO
        )
        assert (survey.ruling.destroy, survey.ruling.held) == (frozenset(), frozenset())
    assert [engine.pid(name) for name in "abc"] == pids


def test_a_controller_at_work_goes_by_it_and_on_when_it_is_mended(
    engine: Sleepers, folder: Path
) -> None:
    put(folder / "a.Boxfile")
    put(folder / "b.Boxfile")
    with watching(engine, folder, resync_seconds=0.2) as controller:
        running(engine, "a", "b")
        pids = engine.pid("a"), engine.pid("b")
        folder.chmod(0o777)
        until(lambda: "SourceUntrusted" in controller.log.getvalue())
        declare_as_stranger(folder / "evil.Boxfile")
        stranger("mv", str(folder / "b.Boxfile"), str(folder / "c.Boxfile"))
        survey = look(engine, folder)
        assert survey.ruling.waiting == {"a", "b"}
        stranger("mv", str(folder / "c.Boxfile"), str(folder / "b.Boxfile"))
        (folder / "evil.Boxfile").rename(folder / "evil")
        folder.chmod(0o755)
        put(folder / "new.Boxfile")
        running(engine, "new")
    assert (engine.pid("a"), engine.pid("b")) == pids
    assert engine.names() == ("a", "b", "new")


def owned_by_another(path: Path) -> str:
    os.chown(path, STRANGER, STRANGER)
    return f"it belongs to UID {STRANGER}, mode 0"


def writable_by_all(path: Path) -> str:
    path.chmod(0o666)
    return "everybody can write it (UID 0, GID 0, mode 0666)"


def writable_by_a_group(path: Path) -> str:
    os.chown(path, 0, STRANGER)
    path.chmod(0o664)
    return f"its group can write it (UID 0, GID {STRANGER}, mode 0664)"


def writable_by_all_and_sticky(path: Path) -> str:
    """Which means nothing on a file."""
    path.chmod(0o1646)
    return "everybody can write it"


def give_by_acl(path: Path, tag: int, who: int) -> None:
    """As `setfacl -m u:WHO:rw` (tag 2) or g:WHO:rw (8) does; the others as in mode 0664."""
    none = 0xFFFFFFFF
    entries = sorted([(1, 6, none), (tag, 6, who), (4, 6, none), (16, 6, none), (32, 4, none)])
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(path, "system.posix_acl_access", acl)


def writable_by_acl_of_a_group(path: Path) -> str:
    give_by_acl(path, 8, STRANGER)
    return "whom its ACL names can write it"


def writable_by_acl(path: Path) -> str:
    give_by_acl(path, 2, STRANGER)
    stranger("sh", "-c", 'echo >>"$1"', "sh", str(path))
    return "whom its ACL names can write it (UID 0, GID 0, mode 0664)"


@pytest.mark.parametrize(
    "spoil",
    [
        owned_by_another,
        writable_by_all,
        writable_by_a_group,
        writable_by_all_and_sticky,
        writable_by_acl,
        writable_by_acl_of_a_group,
    ],
)
def test_one_file_that_others_can_change_harms_only_itself(
    engine: Sleepers, folder: Path, spoil: Callable[[Path], str]
) -> None:
    three(engine, folder)
    pids = [engine.pid(name) for name in "abc"]
    put(folder / "a.Boxfile", GOOD + "cpus: 4\n")
    put(folder / "b.Boxfile", GOOD + "cpus: 4\n")
    put(folder / "new.Boxfile")
    whys = {name: spoil(folder / f"{name}.Boxfile") for name in ("a", "new")}
    survey = sync(engine, folder)
    for name, why in whys.items():
        wish = wishes(survey)[name]
        assert (wish.accepted.reason, wish.faulty) == ("Untrusted", True)
        assert why in wish.accepted.message
    assert wishes(survey)["new"].order is Order.LEAVE
    assert [engine.pid("a"), engine.pid("c")] == [pids[0], pids[2]]
    assert engine.kinds("b")[-1] == "replace"
    assert engine.names() == ("a", "b", "c")
    for name in whys:
        os.chown(folder / f"{name}.Boxfile", 0, 0)
        (folder / f"{name}.Boxfile").chmod(0o644)
    sync(engine, folder)
    assert engine.kinds("a")[-1] == "replace"
    assert engine.pid("new")


def test_a_file_that_was_good_is_looked_at_again_with_each_scan(folder: Path) -> None:
    put(folder / "web" / "Boxfile")
    scanner = Folder(folder)
    assert isinstance(state(scanner), Declared)
    # The directory is not in the file's stamp.
    (folder / "web").chmod(0o777)
    found = state(scanner)
    assert isinstance(found, Faulty)
    assert f"{folder / 'web'}: everybody can write it" in found.message
    assert f"chmod o-w {folder / 'web'}" in found.message
    (folder / "web").chmod(0o755)
    assert isinstance(state(scanner), Declared)


def test_what_others_may_have_taken_from_a_directory_in_it_is_not_absent(
    engine: Sleepers, folder: Path
) -> None:
    for name in ("web", "ok"):
        put(folder / name / "Boxfile")
    sync(engine, folder)
    pid = engine.pid("web")
    (folder / "web").chmod(0o777)
    # One that no sandbox was made from is nobody's business.
    (folder / "other").mkdir()
    (folder / "other").chmod(0o777)
    stranger("rm", "-f", str(folder / "web" / "Boxfile"))
    for _ in range(2):
        survey = sync(engine, folder)
    assert set(wishes(survey)) == {"ok", "web"}
    assert wishes(survey)["web"].accepted.reason == "Untrusted"
    assert engine.pid("web") == pid
    (folder / "web").chmod(0o755)
    sync(engine, folder)
    assert engine.names() == ("ok",)


class TestSticky:
    """In a folder like /tmp others add files, and cannot touch ours."""

    @pytest.fixture
    def folder(self, shared: Path) -> Path:
        shared.chmod(0o1777)
        return shared

    def test_theirs_are_refused_and_ours_run(self, engine: Sleepers, folder: Path) -> None:
        put(folder / "ours.Boxfile")
        declare_as_stranger(folder / "web.Boxfile")
        assert f"it belongs to UID {STRANGER}" in fault(folder)
        sync(engine, folder)
        assert engine.names() == ("ours",)

    def test_a_link_of_theirs_to_a_file_of_ours(self, folder: Path) -> None:
        put(folder / "kept" / "plain")
        stranger("ln", "-s", "kept/plain", str(folder / "web.Boxfile"))
        assert f"it belongs to UID {STRANGER}, mode 0777" in fault(folder)

    def test_a_link_of_ours_to_a_file_of_theirs(self, folder: Path) -> None:
        declare_as_stranger(folder / "theirs")
        (folder / "web.Boxfile").symlink_to("theirs")
        assert "it belongs to UID" in fault(folder)

    def test_a_directory_of_theirs(self, folder: Path) -> None:
        stranger("mkdir", "-m", "777", str(folder / "web"))
        put(folder / "web" / "Boxfile")
        assert f"{folder / 'web'}: it belongs to UID {STRANGER}" in fault(folder)

    def test_theirs_takes_no_name_from_ours(self, engine: Sleepers, folder: Path) -> None:
        put(folder / "web.Boxfile")
        stranger("mkdir", str(folder / "web"))
        declare_as_stranger(folder / "web" / "Boxfile")
        assert wishes(sync(engine, folder))["web"].accepted.reason == "Valid"
        assert engine.pid("web")

    def test_one_of_theirs_in_the_place_of_ours_that_is_gone_changes_nothing(
        self, engine: Sleepers, folder: Path
    ) -> None:
        put(folder / "web.Boxfile")
        sync(engine, folder)
        pid = engine.pid("web")
        (folder / "web.Boxfile").unlink()
        declare_as_stranger(folder / "web.Boxfile")
        sync(engine, folder)
        assert engine.pid("web") == pid


def through_a_link_of_theirs(folder: Path) -> Path:
    folder.parent.chmod(0o1777)
    stranger("ln", "-s", str(folder), str(folder.parent / "link"))
    return folder.parent / "link"


def below_a_directory_of_theirs(folder: Path) -> Path:
    os.chown(folder.parent, STRANGER, STRANGER)
    return folder


def below_a_directory_that_all_can_write(folder: Path) -> Path:
    folder.parent.chmod(0o777)
    return folder


def of_theirs(folder: Path) -> Path:
    os.chown(folder, STRANGER, STRANGER)
    return folder


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (through_a_link_of_theirs, f"link: it belongs to UID {STRANGER}"),
        (below_a_directory_of_theirs, f"it belongs to UID {STRANGER}"),
        (below_a_directory_that_all_can_write, "everybody can write it"),
        (of_theirs, f"desired: it belongs to UID {STRANGER}, mode 0755"),
    ],
)
def test_a_folder_that_others_can_exchange_is_refused(
    engine: Sleepers, folder: Path, spoil: Callable[[Path], Path], why: str
) -> None:
    put(folder / "web.Boxfile")
    path = spoil(folder)
    assert wishes(settled_survey(surveyor_of(engine, path))) == {}
    with pytest.raises(Refused, match="Others can change the Boxfiles") as caught:
        Folder(path).check()
    assert why in str(caught.value.details)
    # Who names a sandbox reads the same file.
    with pytest.raises(Refused, match="Others can change the Boxfiles"):
        declared.load("web", path / "web.Boxfile")


def test_a_boxfile_that_others_can_change_is_not_read_by_a_command_either(folder: Path) -> None:
    path = put(folder / "web.Boxfile")
    assert declared.load("web", path).name == "web"
    path.chmod(0o666)
    with pytest.raises(Refused, match="can be changed by others: everybody can write it") as caught:
        declared.load("web", path)
    assert f"chmod o-w {path}" in str(caught.value)


def test_what_is_roots_or_of_a_group_without_others_is_read(folder: Path) -> None:
    os.umask(0o002)
    put(folder / "web.Boxfile")
    put(folder / "other" / "Boxfile")
    folder.chmod(0o775)
    (folder / "web.Boxfile").chmod(0o664)
    (folder / "other").chmod(0o2775)
    give_by_acl(folder / "other" / "Boxfile", 2, 0)
    assert isinstance(state(folder), Declared)
    assert isinstance(state(folder, "other"), Declared)
