"""What may be mounted into a sandbox, by its names, its links, its sockets and its races."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.engine.grounds import Grounds
from reconciler.engine.mounts import (
    SEARCHED_ENTRIES,
    MissingSource,
    Source,
    UnfitSource,
    refusal,
    resolve,
)
from tests.conftest import short_folder


@dataclass(frozen=True)
class World:
    """A user's home, a folder of Boxfiles, a BOX_HOME and a project, all in `top`."""

    top: Path

    @property
    def project(self) -> Path:
        return self.top / "project"

    def grounds(self, environment: dict[str, str] | None = None) -> Grounds:
        homes = (self.top / "home",)
        return Grounds(self.top / "state", (self.top / "watched",), homes, environment or {})

    def source(self, host: Path | str, *, follow: bool = False, risky: bool = False) -> Source:
        return Source(str(host), self.top / "boxes", follow_symlink=follow, risky=risky)

    def refused(
        self,
        host: Path | str,
        *,
        follow: bool = False,
        risky: bool = False,
        environment: dict[str, str] | None = None,
    ) -> str:
        """The refusal, "" for none."""
        source = self.source(host, follow=follow, risky=risky)
        return refusal(source, self.grounds(environment)) or ""


@pytest.fixture
def world() -> Iterator[World]:
    top = short_folder()
    for name in ("home/.ssh", "home/src", "boxes", "watched", "state/sandboxes/db", "project/src"):
        (top / name).mkdir(parents=True)
    (top / "home/.ssh/id").write_text("key")
    (top / "project/file").write_text("text")
    yield World(top)
    shutil.rmtree(top)


@pytest.mark.parametrize("risky", [False, True])
@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("name", ["project", "project/file", "project/src", "home/src"])
def test_an_ordinary_folder_or_file_is_opened(
    world: World, name: str, *, follow: bool, risky: bool
) -> None:
    path = world.top / name
    source = world.source(path, follow=follow, risky=risky)
    with resolve(source, world.grounds()) as found:
        facts = os.fstat(found.fd)
        assert os.path.samestat(facts, path.stat())
        assert (found.device, found.inode) == (facts.st_dev, facts.st_ino)
        assert (found.path, found.is_directory) == (str(path), path.is_dir())
        assert not os.get_inheritable(found.fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(found.fd)


@pytest.mark.parametrize("name", ["home", "home/.ssh/id", "boxes", "missing", "project"])
def test_a_refusal_leaves_no_descriptor(world: World, name: str) -> None:
    bound(world.project / "src/sock").close()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises((UnfitSource, MissingSource)) as caught:
        resolve(world.source(world.top / name, follow=True), world.grounds())
    # Nor may they live on in the traceback of an error that somebody keeps.
    assert caught.tb is not None
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_tilde_is_the_first_home(world: World) -> None:
    assert world.refused("~/src") == ""
    assert world.refused("~/.ssh").startswith("is your SSH and GPG keys")
    assert "your home folder" in world.refused("~")
    nobody = Grounds(world.top / "state", (), (), {})
    assert "no home" in (refusal(world.source("~/src"), nobody) or "")
    # Only ~ and ~/ have a meaning: this is a file beside the Boxfile.
    assert world.refused("~root/x") == f"does not exist: there is no {world.top}/boxes/~root"


def test_a_relative_source_counts_from_the_boxfile_whose_folder_is_never_seen(world: World) -> None:
    (world.top / "boxes/out").symlink_to(world.project)
    (world.top / "boxes/in").mkdir()
    assert world.refused("out", follow=True) == ""
    folder = f"the Boxfile's own folder ({world.top}/boxes), which no sandbox may see"
    assert world.refused("in") == f"is inside {folder}"
    assert world.refused(".") == f"is {folder}"


# Below the world's top: what is guarded, and something in it.
GUARDED = {
    "home/.ssh": "your SSH and GPG keys",
    "home/.aws": "your credentials",
    "home/.config/gcloud": "your credentials",
    "home/.docker": "your credentials",
    "home/.local/share/containers": "container storage",
    "home/.box": "BOX_HOME",
    "state": "BOX_HOME",
    "boxes": "the Boxfile's own folder",
    "watched": "a folder of Boxfiles",
}


@pytest.mark.parametrize("risky", [False, True])
@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize(("name", "noun"), GUARDED.items())
def test_what_is_guarded_what_is_in_it_and_what_it_is_in_are_refused(
    world: World, name: str, noun: str, *, follow: bool, risky: bool
) -> None:
    path = world.top / name
    (path / "deep/er").mkdir(parents=True)
    (path / "deep/file").touch()
    end = f"{noun} ({path}), which no sandbox may see"
    assert world.refused(path, follow=follow, risky=risky) == f"is {end}"
    for inside in ("deep", "deep/er", "deep/file"):
        assert world.refused(path / inside, follow=follow, risky=risky) == f"is inside {end}"
    outer = path.parent if path.parent.name not in {"home", world.top.name} else world.top
    assert world.refused(outer, follow=follow, risky=risky).startswith("contains ")


@pytest.mark.parametrize(("name", "noun"), GUARDED.items())
def test_the_folder_around_one_guarded_thing_is_refused_for_it(
    world: World, tmp_path: Path, name: str, noun: str
) -> None:
    path = tmp_path / "outer" / Path(name).name
    (path / "inside").mkdir(parents=True)
    (world.top / name).parent.mkdir(parents=True, exist_ok=True)
    if (world.top / name).exists():
        shutil.rmtree(world.top / name)
    # The user keeps it elsewhere.
    (world.top / name).symlink_to(path)
    assert world.refused(path) == f"is {noun} ({path}), which no sandbox may see"
    assert world.refused(path / "inside").startswith(f"is inside {noun} ({path})")
    expected = f"contains {noun} ({path}), which no sandbox may see: mount a smaller part"
    assert world.refused(tmp_path / "outer") == expected


def test_a_link_to_something_guarded_is_kept_as_well(world: World) -> None:
    (world.top / "home/.config").mkdir()
    (world.top / "home/.config/gcloud").symlink_to(world.top / "project/src")
    # Who can write beside it could put another in its place.
    found = world.refused("~/.config")
    assert found.startswith("contains your credentials")
    assert world.refused(world.project / "src").startswith("is your credentials")


def test_what_is_not_there_yet_has_its_place_kept(world: World) -> None:
    (world.top / "home/.config/app").mkdir(parents=True)
    found = world.refused("~/.config")
    assert found.startswith("contains the place of your ")
    assert found.endswith("which no sandbox may see: mount a smaller part")
    assert world.refused("~/.config/app") == ""


@pytest.mark.parametrize(
    ("path", "beginning"),
    [
        ("/proc", "is the kernel's files (/proc)"),
        ("/proc/sys/kernel", "is inside the kernel's files (/proc)"),
        ("/sys/kernel", "is inside the kernel's files (/sys)"),
        ("/dev", "is the kernel's files (/dev)"),
        ("/dev/null", "is inside the kernel's files (/dev)"),
        ("/dev/shm", "is inside the kernel's files (/dev)"),
        ("/etc", "contains secrets of this host"),
        ("/etc/shadow", "is secrets of this host (/etc/shadow)"),
        ("/run", "contains "),
        ("/var/lib", "contains "),
        ("/var", "contains "),
    ],
)
@pytest.mark.parametrize("risky", [False, True])
def test_what_every_host_has_is_refused(
    world: World, path: str, beginning: str, *, risky: bool
) -> None:
    assert world.refused(path, risky=risky).startswith(beginning)


@pytest.mark.parametrize(
    "trick",
    [
        "{top}/project/../home/.ssh",
        "{top}//home/./.ssh//",
        "/{top}/home/.ssh/",
        "/proc/self/root{top}/home/.ssh",
        "/proc/thread-self/root/proc/self/root{top}/home/.ssh",
        "/proc/self/cwd{up}{top}/home/.ssh",
        "{top}/project/to-home/.ssh",
        "{top}/project/to-keys",
        "{top}/project/to-key",
        "/dev/fd/{fd}/.ssh",
        "/proc/self/fd/{fd}/.ssh",
    ],
)
@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("risky", [False, True])
def test_no_spelling_of_a_path_gets_around_a_refusal(
    world: World, trick: str, *, follow: bool, risky: bool
) -> None:
    (world.project / "to-home").symlink_to("../home")
    (world.project / "to-keys").symlink_to(world.top / "home/.ssh")
    (world.project / "to-key").symlink_to("to-home/.ssh/id")
    with (world.top / "home/src").joinpath("held").open("w"):
        fd = os.open(world.top / "home", os.O_RDONLY)
        path = trick.format(top=world.top, fd=fd, up="/.." * len(Path.cwd().parts))
        found = world.refused(path, follow=follow, risky=risky)
        os.close(fd)
    by_name = ".." in path or (not follow and ("to-" in path or "/proc" in path or "/dev" in path))
    if by_name:
        assert found.startswith(("contains `..`", "passes the symbolic link"))
    else:
        assert "your SSH and GPG keys" in found


def test_the_root_by_another_name_is_the_root(world: World) -> None:
    found = world.refused("/proc/self/root", follow=True)
    assert found.startswith("is the whole file system of this host")
    assert world.refused("/proc/self/root", follow=True, risky=True) == ""
    assert world.refused("//") == found


def test_a_link_is_named_and_followed_only_on_request(world: World) -> None:
    (world.top / "link").symlink_to("project")
    found = world.refused(world.top / "link/src")
    assert found == (
        f"passes the symbolic link {world.top}/link: name what it leads to, or set "
        "`follow_symlink: true`"
    )
    with resolve(world.source(world.top / "link/src", follow=True), world.grounds()) as it:
        assert it.path == str(world.project / "src")


def test_links_in_the_users_own_prefixes_are_the_users_business(world: World) -> None:
    (world.top / "boxes/in").mkdir()
    (world.top / "boxes-link").symlink_to("boxes")
    found = refusal(Source("in", world.top / "boxes-link"), world.grounds())
    assert (found or "").startswith("is inside the Boxfile's own folder")
    (world.top / "home-link").symlink_to("home")
    homes = (world.top / "home-link",)
    grounds = Grounds(world.top / "state", (), homes, {})
    assert refusal(world.source("~/src"), grounds) is None
    assert "your SSH" in (refusal(world.source("~/.ssh"), grounds) or "")


@pytest.mark.parametrize("follow", [False, True])
def test_what_does_not_exist_is_missing(world: World, *, follow: bool) -> None:
    source = world.source(world.project / "no/such", follow=follow)
    with pytest.raises(MissingSource) as caught:
        resolve(source, world.grounds())
    missing = world.project / ("no/such" if follow else "no")
    assert caught.value.brief == (
        f"The mount source '{world.project}/no/such' does not exist: there is no {missing}."
    )


@pytest.mark.parametrize("follow", [False, True])
def test_a_file_has_nothing_below_it(world: World, *, follow: bool) -> None:
    found = world.refused(world.project / "file/x", follow=follow)
    assert found == f"cannot be used: {world.project}/file/x: Not a directory"


def test_what_has_no_name_on_this_host_is_refused(world: World) -> None:
    fd = os.memfd_create("x")
    found = world.refused(f"/proc/self/fd/{fd}", follow=True, risky=True)
    os.close(fd)
    assert found == "leads out of the files that box sees, or was just moved"


def bound(path: Path, kind: int = socket.SOCK_STREAM) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(str(path))
    return sock


def test_only_folders_and_regular_files_can_be_mounted(world: World) -> None:
    os.mkfifo(world.top / "fifo")
    bound(world.top / "sock").close()
    for name in ("fifo", "sock"):
        found = world.refused(world.top / name, risky=True)
        assert found == "is neither a folder nor a regular file"


def test_the_home_is_handed_over_only_as_a_risk(world: World) -> None:
    (world.top / "to-home").symlink_to("home")
    expected = "is your home folder as a whole, with every secret and control socket in it: set "
    for path in ("~", "~/", world.top / "home", world.top / "to-home"):
        found = world.refused(path, follow=True)
        assert found.startswith(expected)
        assert "`risky: true`" in found
        assert world.refused(path, follow=True, risky=True) == ""


def test_the_host_is_handed_over_only_as_a_risk(world: World) -> None:
    assert world.refused("/").startswith("is the whole file system of this host, with every secret")
    assert world.refused("/", risky=True) == ""


def test_a_home_that_does_not_exist_is_no_hindrance(world: World) -> None:
    grounds = Grounds(world.top / "state", (), (world.top / "missing",), {})
    assert refusal(world.source(world.project), grounds) is None


def test_risk_is_for_the_home_itself_not_for_what_is_around_or_in_it(world: World) -> None:
    assert world.refused(world.top, risky=True).startswith("contains ")
    assert world.refused("~/.ssh", risky=True).startswith("is your SSH")
    # A home that is guarded as a whole for another reason.
    source = Source("~", world.top / "home", risky=True)
    assert (refusal(source, world.grounds()) or "").startswith("is the Boxfile's own folder")
    inside = Source("~", world.top, risky=True)
    assert (refusal(inside, world.grounds()) or "").startswith("is inside the Boxfile's own")


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
@pytest.mark.parametrize("listens", [True, False])
def test_a_socket_in_the_source_is_a_risk(world: World, kind: int, *, listens: bool) -> None:
    path = world.project / "src/x.sock"
    with bound(path, kind) as sock:
        if listens and kind != socket.SOCK_DGRAM:
            sock.listen()
        found = world.refused(world.project)
        assert found.startswith(f"contains the socket {path}, which leads the sandbox to ")
        assert found.endswith("set `risky: true` to allow that")
        assert world.refused(world.project, risky=True) == ""
        assert world.refused(world.project / "file") == ""
    # Left behind, it may be taken up again.
    assert world.refused(world.project) != ""
    path.unlink()
    assert world.refused(world.project) == ""


def test_a_socket_that_was_removed_leads_nowhere(world: World) -> None:
    path = world.project / "x.sock"
    with bound(path) as sock:
        sock.listen()
        path.unlink()
        assert world.refused(world.project) == ""
        path.touch()
        assert world.refused(world.project) == ""


@pytest.mark.slow
def test_a_tree_too_large_to_be_searched_is_a_risk(world: World) -> None:
    flood(world.project / "many", SEARCHED_ENTRIES)
    assert "too many files lie in it" in world.refused(world.project)
    assert world.refused(world.project, risky=True) == ""
    assert world.refused(world.project / "src", risky=True) == ""


def flood(folder: Path, count: int) -> None:
    folder.mkdir()
    (folder / "0").touch()
    for number in range(1, count):
        # ext4 allows 65,000 links to one file.
        (folder / str(number)).hardlink_to(folder / "0")


def test_a_hard_link_to_a_socket_elsewhere_is_found(world: World) -> None:
    with bound(world.top / "x.sock") as sock:
        sock.listen()
        (world.project / "src/other").hardlink_to(world.top / "x.sock")
        assert f"contains the socket {world.project}/src/other" in world.refused(world.project)
        assert world.refused(world.project, risky=True) == ""
        control = {"DOCKER_HOST": f"unix://{world.top}/x.sock"}
        found = world.refused(world.project, risky=True, environment=control)
        assert found == (
            f"contains what DOCKER_HOST names, also named {world.project}/src/other, which no "
            "sandbox may see"
        )


def test_a_hard_link_to_a_credential_is_that_credential(world: World) -> None:
    (world.top / "home/.netrc").write_text("secret")
    (world.project / "src/notes").hardlink_to(world.top / "home/.netrc")
    for risky in (False, True):
        found = world.refused(world.project / "src/notes", risky=risky)
        assert found.startswith("is your credentials")
        assert "also named" in world.refused(world.project, risky=risky)


def test_a_hard_link_to_a_file_of_a_folder_of_secrets_is_that_file(world: World) -> None:
    (world.project / "src/notes").hardlink_to(world.top / "home/.ssh/id")
    for risky in (False, True):
        found = world.refused(world.project / "src/notes", risky=risky)
        assert found.startswith("is one of your SSH and GPG keys by another name")
        assert "also named" in world.refused(world.project, risky=risky)


@pytest.mark.parametrize("kept", ["boxes", "watched", "state"])
def test_no_guest_writes_the_boxfiles_or_what_box_keeps(world: World, kept: str) -> None:
    (world.top / kept).rename(world.top / "home" / kept)
    (world.top / kept).symlink_to(world.top / "home" / kept)
    read = world.source("~", risky=True)
    assert refusal(read, world.grounds()) is None
    found = refusal(replace(read, writable=True), world.grounds())
    assert found is not None
    assert found.startswith("contains ")


def test_an_abstract_socket_is_in_no_folder(world: World) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"\0{world.project}/x.sock")
        sock.listen()
        assert world.refused(world.project) == ""


def test_a_socket_that_a_variable_names_is_no_mere_risk(world: World) -> None:
    (world.top / "agent").mkdir()
    with bound(world.top / "agent/sock"):
        variable = {"SSH_AUTH_SOCK": f"{world.top}/agent/sock"}
        found = world.refused(world.top / "agent", risky=True, environment=variable)
        assert found.startswith(f"contains what SSH_AUTH_SOCK names ({world.top}/agent/sock)")


def test_a_name_on_the_disk_cannot_write_on_the_terminal(world: World) -> None:
    name = "x\n\x1b[2Jé"
    (world.project / name).mkdir()
    bound(world.project / name / "s").close()
    found = world.refused(world.project)
    assert f"{world.project}/x\\n\\x1b[2Jé/s" in found
    assert found.isprintable()


TEXTS = st.text(st.characters(), max_size=30) | st.text("./~ab\0\n\ud800\udc80", max_size=12)


@given(host=TEXTS, follow=st.booleans(), risky=st.booleans())
@example(host="\0", follow=False, risky=False)
@example(host="/\ud800", follow=False, risky=True)
@example(host="x" * 5000, follow=False, risky=False)
@example(host="a/" * 5000, follow=True, risky=False)
@example(host="", follow=False, risky=False)
def test_any_text_is_refused_or_found_and_nothing_else(
    host: str, *, follow: bool, risky: bool
) -> None:
    folder = Path("/nonexistent/boxes")
    grounds = Grounds(Path("/nonexistent/state"), (), (Path("/nonexistent/home"),), {})
    found = refusal(Source(host, folder, follow_symlink=follow, risky=risky), grounds)
    assert found is None or (found and found.isprintable())


@pytest.mark.slow
def test_a_source_that_is_swapped_meanwhile_is_never_a_guarded_one(world: World) -> None:
    keys = (world.top / "home/.ssh").stat()
    ending = threading.Event()
    link, draft = world.top / "name", world.top / "draft"
    link.symlink_to("project")

    def swap() -> None:
        while not ending.is_set():
            for target in ("home/.ssh", "project"):
                draft.symlink_to(target)
                draft.rename(link)

    thread = threading.Thread(target=swap)
    thread.start()
    outcomes = set()
    try:
        for _ in range(100):
            with contextlib.suppress(UnfitSource):
                with resolve(world.source(link, follow=True), world.grounds()) as it:
                    assert not os.path.samestat(os.fstat(it.fd), keys)
                    assert stat.S_ISDIR(os.fstat(it.fd).st_mode)
                outcomes.add(it.path)
                continue
            outcomes.add("refused")
    finally:
        ending.set()
        thread.join(10)
    assert outcomes == {str(world.project), "refused"}, "the race never happened"
