"""Sources behind mounts, and judged by an ordinary user: what needs root to be set up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import short_folder
from tests.linux import mount_namespace
from tests.linux.ordinary_user import OrdinaryUser, made

pytestmark = pytest.mark.root

WORLD = """
import socket
from reconciler.engine.grounds import Grounds
from reconciler.engine.mounts import Source, refusal

top = Path(sys.argv[1])
home, boxes, state, project = (top / name for name in ("home", "boxes", "state", "project"))
keys = home / ".ssh"
for folder in (keys / "deep", boxes, state / "sandboxes", project / "in"):
    folder.mkdir(parents=True)
(keys / "id").touch()
(project / "file").touch()

def why(path, **more):
    return refusal(Source(str(path), boxes, **more), Grounds(state, (), (home,), {})) or ""

"""
KEYS = "your SSH and GPG keys ({top}/home/.ssh), which no sandbox may see"


@pytest.fixture
def top() -> Iterator[Path]:
    import shutil

    folder = short_folder()
    yield folder
    shutil.rmtree(folder)


CASES = [
    ("bind(keys, project / 'in')", "project / 'in'", "is " + KEYS),
    ("bind(keys, project / 'in')", "project / 'in/deep'", "is inside " + KEYS),
    ("bind(keys / 'deep', project / 'in')", "project / 'in'", "is inside " + KEYS),
    ("bind(keys / 'id', project / 'file')", "project / 'file'", "is inside " + KEYS),
    ("bind(home, project / 'in')", "project / 'in/.ssh'", "is " + KEYS),
    ("bind(home, project / 'in')", "project / 'in'", "is your home folder as a whole"),
    ("bind(top, '/mnt')", "'/mnt/home/.ssh/deep'", "is inside " + KEYS),
    ("bind(top, '/mnt')", "'/mnt/home'", "is your home folder as a whole"),
    ("bind(top, '/mnt')", "'/mnt'", "contains "),
    ("bind('/', '/mnt')", "'/mnt'", "is the whole file system of this host"),
    ("bind('/tmp', '/mnt')", "'/mnt' + str(top)[4:] + '/home/.ssh/id'", "is inside " + KEYS),
    ("bind(keys, project / 'in')", "project", "contains " + KEYS),
    ("bind(keys / 'deep', project / 'in')", "project", "contains " + KEYS),
    ("bind(top, project / 'in')", "project", "contains "),
    ("bind(keys / 'id', project / 'file')", "project", "contains " + KEYS),
    (
        "mount('-t', 'tmpfs', 'none', keys); (keys / 'new').mkdir(); bind(keys, '/mnt')",
        "'/mnt/new'",
        "is inside " + KEYS,
    ),
    # What a mount on it hides is still there for who comes another way.
    (
        "bind(home, '/mnt'); mount('-t', 'tmpfs', 'none', keys)",
        "'/mnt/.ssh/deep'",
        "is inside " + KEYS,
    ),
    # What is mounted in it is part of it.
    (
        "mount('-t', 'tmpfs', 'none', keys / 'deep'); bind(keys / 'deep', project / 'in')",
        "project / 'in'",
        "is inside " + KEYS,
    ),
    (
        "mount('-t', 'proc', 'none', project / 'in')",
        "project / 'in'",
        "is on a file system of the kernel (proc at ",
    ),
    ("mount('-t', 'tmpfs', 'none', project / 'in')", "project / 'in'", ""),
    ("bind(project / 'in', '/mnt')", "'/mnt'", ""),
]
EACH = [(case, follow) for follow in (False, True) for case in CASES]


@pytest.fixture(scope="module")
def answers() -> Iterator[tuple[Path, list[str]]]:
    """A folder, and what was said about the source of EACH, whose world is the folder's N-th."""
    import shutil

    folder = short_folder()
    scripts = [
        f"{WORLD}{mounts}\nanswer = why({source}, follow_symlink={follow})"
        for (mounts, source, _), follow in EACH
    ]
    imports = "import reconciler.engine.grounds, reconciler.engine.mounts"
    yield folder, mount_namespace.run_each(imports, scripts, folder)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "number",
    range(len(EACH)),
    ids=[f"{follow}-{mounts}-{source}" for (mounts, source, _), follow in EACH],
)
def test_no_mount_hides_what_a_source_is(answers: tuple[Path, list[str]], number: int) -> None:
    folder, said = answers
    wanted = EACH[number][0][2].format(top=folder / str(number))
    assert said[number].startswith(wanted) if wanted else said[number] == ""


@pytest.mark.parametrize(
    ("fstype", "inside"),
    [("proc", "self"), ("sysfs", "kernel"), ("devpts", "ptmx"), ("tracefs", "events")],
)
def test_a_file_system_of_the_kernel_is_known_wherever_it_is(
    top: Path, fstype: str, inside: str
) -> None:
    found = mount_namespace.run(
        f"""{WORLD}
mount("-t", {fstype!r}, "none", project / "in")
print(json.dumps([why(project / "in"), why(project), why(project, risky=True)]))
""",
        top,
    )
    assert all("which no sandbox may see" in each for each in found)
    own = f"contains a file system of the kernel ({fstype} at {top}/project/in)"
    assert found[1].startswith((own, "contains the kernel's files"))


@pytest.mark.slow
def test_everything_that_a_host_may_have_is_guarded_in_every_direction(top: Path) -> None:
    words = """
        /proc /sys /dev /etc/ssh /etc/shadow /etc/gshadow /var/lib/containers /run/containers
        /var/lib/docker /var/lib/containerd /var/lib/lxc /var/lib/lxd /var/lib/libvirt
        /run/docker.sock /run/podman /run/containerd /run/crio /run/dbus /run/systemd /run/user/7
        /tmp/.X11-unix
        ~/.box ~/.local/share/containers ~/.local/share/docker ~/.ssh ~/.gnupg ~/.aws ~/.azure
        ~/.config/gcloud ~/.kube ~/.docker ~/.config/containers ~/.netrc ~/.git-credentials
        ~/.config/git/credentials ~/.config/gh ~/.config/hub ~/.config/doctl ~/.oci
        ~/.terraform.d ~/.npmrc ~/.pypirc ~/.cargo/credentials ~/.cargo/credentials.toml
        ~/.password-store ~/.local/share/keyrings ~/.config/op ~/.vault-token""".split()
    found = mount_namespace.run(
        f"""
# All of it is made in empty file systems, over those of the host; box may lie in one of them.
import reconciler.engine.mounts
for each in ("/var/lib", "/run", "/etc", "/tmp"):
    mount("-t", "tmpfs", "none", each)
os.makedirs(sys.argv[1])
{WORLD}
outer = project / "outer"
(outer / "target").mkdir(parents=True)
answers = []
for word in {words!r}:
    path = Path(word.replace("~", str(home)))
    path.mkdir(parents=True, exist_ok=True)
    bind(path, outer / "target")
    inner = next(iter(sorted(path.iterdir())), None) or path / "x"
    if not inner.exists():
        inner.mkdir()
    asked = (path, inner, outer, outer / "target")
    answers.append([word, *(why(each, risky=True) for each in asked)])
    subprocess.run(["umount", outer / "target"], check=True)
print(json.dumps(answers))
""",
        top,
    )
    assert len(found) == len(words)
    for word, own, inner, outer, other in found:
        path = word.replace("~", f"{top}/home").replace("/user/7", "/user")
        assert own.startswith("is "), word
        assert f"({path})" in own, word
        assert inner.startswith(("is inside", "passes the symbolic link")), word
        assert outer.startswith("contains "), word
        assert f"({path})" in outer, word
        assert other.startswith("is "), word


def test_an_overlay_is_compared_with_itself(top: Path) -> None:
    # stat(2) and mountinfo disagree about the device of what lies in it.
    same, deep = mount_namespace.run(
        f"""{WORLD}
mount("-t", "tmpfs", "none", project)
for name in ("lower", "upper", "work", "in"):
    (project / name).mkdir()
mount("-t", "overlay", "-o", f"lowerdir={{home}},upperdir={{project}}/upper,"
      f"workdir={{project}}/work", "none", home)
bind(keys, project / "in")
answers = [why(project / "in")]
subprocess.run(["umount", project / "in"], check=True)
bind(keys / "deep", project / "in")
print(json.dumps([*answers, why(project / "in")]))
""",
        top,
    )
    assert same == "is " + KEYS.format(top=top)
    assert deep == "is inside " + KEYS.format(top=top)


def test_a_listening_socket_is_found_on_a_mount_that_no_search_enters(top: Path) -> None:
    listening, silent = mount_namespace.run(
        f"""{WORLD}
mount("-t", "tmpfs", "none", project / "in")
sock = socket.socket(socket.AF_UNIX)
sock.bind(str(project / "in/x.sock"))
silent = why(project)
sock.listen()
print(json.dumps([why(project), silent]))
""",
        top,
    )
    assert listening.startswith(f"contains the socket {top}/project/in/x.sock")
    assert silent == ""


@pytest.fixture(scope="module")
def user() -> Iterator[OrdinaryUser]:
    with made() as it:
        yield it


SCRIPT = """
    import json, os
    from pathlib import Path
    from reconciler.engine.grounds import gather
    from reconciler.engine.mounts import Source, refusal
    home = Path.home()
    grounds = gather(home / ".box", os.environ)
    def why(host, **more):
        return refusal(Source(str(host), home / "boxes", **more), grounds) or ""
"""


def test_an_ordinary_user_mounts_from_the_own_home(user: OrdinaryUser) -> None:
    said = user.run(
        SCRIPT
        + """
    for name in ("boxes", ".ssh", "work/private"):
        (home / name).mkdir(parents=True)
    print(why("~/work") or None)
    print(why("~/.ssh"))
    print(why("~"))
    print(why("~", risky=True) or None)
    (home / "work/private").chmod(0)
    print(why("~/work"))
    print(why("~/work/private"))
    print(why("~/work/private/x"))
    (home / "work/private").rmdir()
    """
    ).splitlines()
    assert said[0] == said[3] == "None"
    assert said[1].startswith(f"is your SSH and GPG keys ({user.home}/.ssh)")
    assert said[2].startswith("is your home folder as a whole")
    assert said[4].startswith("cannot be searched for sockets, because 'private' in it cannot be")
    assert said[5].startswith("cannot be used: ")
    assert said[6] == f"cannot be used: {user.home}/work/private/x: Permission denied"


def test_what_an_ordinary_user_may_not_look_at_is_told(user: OrdinaryUser, top: Path) -> None:
    (top / "hidden").mkdir(mode=0o700)
    said = user.run(
        SCRIPT
        + f"""
    print(why({str(top / "hidden")!r}))
    print(why({str(top / "hidden/x")!r}, follow_symlink=True))
    print(why("/etc/shadow"))
    print(why("/proc/1/root", follow_symlink=True))
    print(why("/"))
    """
    ).splitlines()
    assert said[0] == f"cannot be used: {top}/hidden: Permission denied"
    assert said[1] == f"cannot be used: {top}/hidden/x: Permission denied"
    assert said[2].startswith("is secrets of this host")
    assert said[3] == "cannot be used: /proc/1/root: Permission denied"
    assert said[4].startswith("is the whole file system of this host")
