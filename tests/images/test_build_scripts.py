"""The scripts of builds, run by busybox's shell in a root of its own."""

from __future__ import annotations

import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.images import busybox
from reconciler.images.build_scripts import SCRIPTS, STAGING

pytestmark = pytest.mark.root

SH = "/bin/sh"


@dataclass(frozen=True)
class Root:
    """A root file system with nothing but busybox and the scripts."""

    path: Path

    def script(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = ["chroot", str(self.path), SH, f"{STAGING}/{name}", *arguments]
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        return subprocess.run(argv, check=False, capture_output=True, text=True, env=env)

    def run(self, name: str, *arguments: str) -> str:
        done = self.script(name, *arguments)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def fails(self, name: str, *arguments: str) -> str:
        done = self.script(name, *arguments)
        assert done.returncode == 1
        return done.stderr

    def read(self, name: str) -> str:
        return (self.path / name).read_text()

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)

    def facts(self, name: str) -> tuple[int, int, int]:
        """Return mode, user and group of a file."""
        found = (self.path / name).lstat()
        return stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid


@pytest.fixture
def root(tmp_path: Path) -> Root:
    path = tmp_path / "root"
    busybox.make_tree(busybox.find_busybox(), path)
    made = Root(path)
    for name, text in SCRIPTS.items():
        made.write(f"{STAGING[1:]}/{name}", text)
    return made


def content(root: Root, name: str, text: str) -> None:
    root.write(f"{STAGING[1:]}/content/{name}", text, 0o600)


def test_a_user_has_entries_and_a_home(root: Root) -> None:
    passwd, group = root.read("etc/passwd"), root.read("etc/group")
    root.run("users", "dev", SH, "no", "_x-1", "/bin/ash", "no")
    assert root.read("etc/passwd") == (
        f"{passwd}dev:x:1000:1000::/home/dev:/bin/sh\n_x-1:x:1001:1001::/home/_x-1:/bin/ash\n"
    )
    assert root.read("etc/group") == f"{group}dev:x:1000:\n_x-1:x:1001:\n"
    assert root.facts("home/dev") == (0o700, 1000, 1000)
    assert root.facts("home/_x-1") == (0o700, 1001, 1001)
    assert root.facts("etc/passwd") == (0o644, 0, 0)
    assert not (root.path / "etc/shadow").exists()


def test_twice_is_like_once(root: Root) -> None:
    root.run("users", "dev", SH, "no", "two", SH, "no")
    (root.path / "home/dev").chmod(0o750)
    before = root.read("etc/passwd"), root.read("etc/group")
    root.run("users", "dev", SH, "no", "two", SH, "no")
    assert (root.read("etc/passwd"), root.read("etc/group")) == before
    assert root.facts("home/dev") == (0o750, 1000, 1000), "a home that was there is not touched"


def test_a_user_of_the_base_keeps_all_but_the_shell(root: Root) -> None:
    root.write(
        "etc/passwd", "a:x:7:8:A B:/srv/a:/bin/false\nroot:x:0:0::/root:/bin/sh\nab:x:9:9:::\n"
    )
    root.run("users", "a", "/bin/ash", "no")
    assert root.read("etc/passwd") == (
        "a:x:7:8:A B:/srv/a:/bin/ash\nroot:x:0:0::/root:/bin/sh\nab:x:9:9:::\n"
    )
    assert not (root.path / "srv").exists()


def test_a_home_that_the_base_forgot_is_made(root: Root) -> None:
    root.write("etc/passwd", "a:x:7:8::/home/b:/bin/sh\n")
    root.run("users", "a", SH, "no")
    assert root.facts("home/b") == (0o700, 7, 8)


def test_numbers_that_a_user_or_a_group_has_are_left_alone(root: Root) -> None:
    root.write("etc/passwd", "root:x:0:0::/root:/bin/sh\na:x:1000:5:::\nb:x:1003:5:::")
    root.write("etc/group", "g:x:1001:a,b\nh:x:1002:")
    root.run("users", "dev", SH, "no", "eve", SH, "no")
    assert root.read("etc/passwd").endswith(
        "b:x:1003:5:::\ndev:x:1004:1004::/home/dev:/bin/sh\neve:x:1005:1005::/home/eve:/bin/sh\n"
    )
    assert root.read("etc/group") == "g:x:1001:a,b\nh:x:1002:\ndev:x:1004:\neve:x:1005:\n"


def test_a_group_of_the_same_name_is_the_users(root: Root) -> None:
    root.write("etc/group", "dev:x:50:root\n")
    root.run("users", "dev", SH, "no")
    assert "dev:x:1000:50::/home/dev:" in root.read("etc/passwd")
    assert root.read("etc/group") == "dev:x:50:root\n"
    assert root.facts("home/dev") == (0o700, 1000, 50)


def test_shadow_files_have_an_entry_that_no_password_opens(root: Root) -> None:
    root.write("etc/shadow", "root:*:1:0:99999:7:::\n", 0o640)
    root.write("etc/gshadow", "root:*::\n", 0o640)
    root.run("users", "dev", SH, "no")
    assert root.read("etc/shadow") == "root:*:1:0:99999:7:::\ndev:*::0:99999:7:::\n"
    assert root.read("etc/gshadow") == "root:*::\ndev:!::\n"
    assert root.facts("etc/shadow") == (0o640, 0, 0)


def test_a_base_without_any_users_gets_its_first_one(root: Root) -> None:
    for name in ("passwd", "group"):
        (root.path / "etc" / name).unlink()
    root.run("users", "dev", SH, "no")
    assert root.read("etc/passwd") == "dev:x:1000:1000::/home/dev:/bin/sh\n"


def test_a_new_home_has_the_files_of_skel(root: Root) -> None:
    root.write("etc/skel/.profile", "hello", 0o600)
    root.write("etc/secret", "root's")
    (root.path / "etc/skel/link").symlink_to("/etc/secret")
    root.run("users", "dev", SH, "no")
    assert root.read("home/dev/.profile") == "hello"
    assert root.facts("home/dev/.profile") == (0o600, 1000, 1000)
    assert root.facts("etc/secret") == (0o644, 0, 0), "the link was followed"


def test_a_directory_that_waits_for_a_new_user_becomes_the_home(root: Root) -> None:
    root.write("home/dev/kept", "")
    root.run("users", "dev", SH, "no")
    assert root.facts("home/dev") == (0o700, 1000, 1000)
    assert root.facts("home/dev/kept") == (0o644, 0, 0)


def test_a_home_that_is_a_link_is_refused(root: Root) -> None:
    (root.path / "home/dev").symlink_to("/etc")
    assert root.fails("users", "dev", SH, "no") == ("box: user dev: /home/dev is a symbolic link\n")
    assert root.facts("etc") == (0o755, 0, 0)


def test_a_shell_that_is_not_there_is_told(root: Root) -> None:
    message = root.fails("users", "dev", "/bin/zsh", "no")
    assert message == "box: user dev: the image has no shell /bin/zsh\n"


def test_sudo_that_is_not_there_is_told(root: Root) -> None:
    message = root.fails("users", "dev", SH, "yes")
    assert message == "box: user dev: sudo is not in the image: add it to packages\n"


def test_sudo_is_allowed_to_who_shall_have_it(root: Root) -> None:
    root.write("usr/bin/sudo", "", 0o755)
    root.write("etc/target", "")
    (root.path / "etc/sudoers.d").mkdir()
    (root.path / "etc/sudoers.d/dev").symlink_to("/etc/target")
    root.run("users", "dev", SH, "yes", "eve", SH, "no")
    assert root.read("etc/sudoers.d/dev") == "dev ALL=(ALL:ALL) NOPASSWD: ALL\n"
    assert root.facts("etc/sudoers.d/dev") == (0o440, 0, 0)
    assert [path.name for path in (root.path / "etc/sudoers.d").iterdir()] == ["dev"]
    assert root.read("etc/target") == ""


@pytest.mark.parametrize(
    "path",
    [
        "/plain",
        "/a b/c",
        "/-x/-y",
        "/$HOME/`id`",
        "/*/?",
        "/'\"/\\",
        "/é/\u4e2d",
        "/#",
        "/ ",
        "/;id",
    ],
)
def test_a_file_lands_where_its_path_says(root: Root, path: str) -> None:
    content(root, "0", "text\n")
    root.run("files", "0", "4750", path)
    assert root.read(path[1:]) == "text\n"
    assert root.facts(path[1:]) == (0o4750, 0, 0)
    assert list((root.path / f"{STAGING[1:]}/content").iterdir()) == []


def test_files_lie_in_directories_that_all_may_enter(root: Root) -> None:
    content(root, "0", "a")
    content(root, "1", "b")
    root.run("files", "0", "0644", "/srv/deep/down/a", "1", "600", "/srv/deep/b")
    assert root.facts("srv/deep/down") == (0o755, 0, 0)
    assert root.facts("srv/deep/down/a") == (0o644, 0, 0)
    assert root.facts("srv/deep/b") == (0o600, 0, 0)


def test_a_link_in_a_files_place_is_replaced(root: Root) -> None:
    root.write("etc/target", "kept")
    for name, target in (("a", "/etc/target"), ("b", "/etc"), ("c", "nowhere")):
        (root.path / name).symlink_to(target)
        content(root, "0", "new")
        root.run("files", "0", "0644", f"/{name}")
        assert not (root.path / name).is_symlink()
        assert root.read(name) == "new"
    assert root.read("etc/target") == "kept"


def test_links_among_the_parents_are_followed(root: Root) -> None:
    content(root, "0", "new")
    root.run("files", "0", "0755", "/sbin/tool")
    assert (root.path / "sbin").is_symlink()
    assert root.read("bin/tool") == "new"


def test_a_file_replaces_what_was_there_and_its_mode(root: Root) -> None:
    root.write("etc/conf", "old", 0o4777)
    content(root, "0", "new")
    root.run("files", "0", "600", "/etc/conf")
    assert root.read("etc/conf") == "new"
    assert root.facts("etc/conf") == (0o600, 0, 0)


def test_a_directory_is_not_replaced_by_a_file(root: Root) -> None:
    content(root, "0", "new")
    assert root.fails("files", "0", "0644", "/etc") == "box: /etc is a directory of the image\n"
    assert root.read("etc/shells")


ECHO = f'#!{SH}\nprintf \'%s|\' "${{0##*/}}" "$@"\necho\n'
CALLS = {
    "apk": ["apk|add|--no-cache|--|git|g++|"],
    "dnf": ["dnf|install|-y|--setopt=install_weak_deps=False|git|g++|", "dnf|clean|all|"],
    "apt": [
        "apt-get|-q|update|",
        "apt-get|-q|-y|-o|APT::Cmd::Pattern-Only=true|--no-install-recommends|install|--|git|g++|",
        "apt-get|clean|",
    ],
}


@pytest.mark.parametrize("name", CALLS)
def test_packages_are_words_behind_all_options(root: Root, name: str) -> None:
    program = CALLS[name][0].partition("|")[0]
    root.write(f"usr/bin/{program}", ECHO, 0o755)
    root.write("var/lib/apt/lists/index", "")
    assert root.run(name, "git", "g++").splitlines() == CALLS[name]
    assert (root.path / "var/lib/apt/lists/index").exists() == (name != "apt")


@pytest.mark.parametrize("name", CALLS)
def test_a_package_manager_that_fails_fails_the_step(root: Root, name: str) -> None:
    program = "apt-get" if name == "apt" else name
    failing = f'#!{SH}\ncase " $* " in *" git "*) exit 1 ;; esac\n'
    root.write(f"usr/bin/{program}", failing, 0o755)
    root.fails(name, "git")
