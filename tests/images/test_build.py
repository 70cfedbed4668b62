"""Real builds with podman, in a storage of their own."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.boxfile.recipe import NewFile, NewUser, Recipe
from reconciler.errors import Missing, Refused
from reconciler.images import podman, podman_build
from reconciler.images.build import BuildFailed, build
from reconciler.images.config import ImageConfig
from reconciler.images.layers import merge
from reconciler.images.oci import open_archive
from reconciler.images.rootfs import build_image, built_image
from reconciler.linux.process import find_program
from tests.images.archives import file, folder, layer, layout, symlink

pytestmark = [
    pytest.mark.skipif(find_program("podman") is None, reason="needs podman"),
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.usefixtures("podman_storage"),
]

BUSYBOX = "builtin:busybox"
UUID = "cat /proc/sys/kernel/random/uuid"
BUILD = """
import sys
from pathlib import Path
from reconciler.boxfile.recipe import Recipe
from reconciler.images.build import build
build(Path(sys.argv[1]), Recipe("builtin:busybox", run=tuple(sys.argv[2:])), print)
"""


def quiet(message: str) -> None:
    assert message


def tool(*arguments: str, data: bytes = b"") -> str:
    command = ["podman", *arguments]
    return subprocess.run(command, check=True, input=data, capture_output=True).stdout.decode()


def unpack(reference: str, tmp_path: Path) -> tarfile.TarFile:
    """Return all files of an image, its layers laid over one another."""
    archive = tmp_path / f"{secrets.token_hex(4)}.tar"
    podman.save(reference, archive)
    flat = io.BytesIO()
    with open_archive(archive) as image:
        merge(image.layers).write(flat)
    flat.seek(0)
    return tarfile.open(fileobj=flat)


def read(image: tarfile.TarFile, name: str) -> bytes:
    member = image.extractfile(name)
    assert member is not None
    return member.read()


def facts(image: tarfile.TarFile, name: str) -> tuple[int, int, int]:
    member = image.getmember(name)
    return member.mode, member.uid, member.gid


def traces() -> set[Path]:
    """Return what podman and the runtime keep of builds, outside of the storage."""
    return {*Path("/var/tmp").glob("buildah*"), *Path("/run").glob("*/buildah-buildah*")}


@pytest.fixture(autouse=True)
def before() -> set[Path]:
    """Return the traces of other builds."""
    return traces()


def assert_nothing_left(home: Path, before: set[Path]) -> None:
    """No container in the storage, none that ran, no file of a build."""
    assert tool("ps", "--all", "--external", "--quiet") == ""
    assert list((home / "tmp").glob("*/")) == []
    assert traces() <= before


HOSTILE = [
    '"], ["/bin/sh", "-c", "id"]',
    "\\",
    "a \\",
    "# escape=`",
    "<<EOF",
    "$(id) `id` ${HOME} $HOME $$",
    "'; id; '",
    '"',
    "--mount=type=bind,source=/,target=/host",
    "-e",
    "ünï \u4e2d \U0001f600 \u202e",
    " ",
    "",
    "%s *?[a-z] ~ !! &",
]


def test_hostile_lines_are_the_shells_alone(
    box_home: Path, tmp_path: Path, before: set[Path]
) -> None:
    long = "x" * 60_000
    recipe = Recipe(
        BUSYBOX,
        run=tuple(f"printf %s {shlex.quote(t)} > /r{n}" for n, t in enumerate(HOSTILE[:7])),
        runcmd=(
            *(f"printf %s {shlex.quote(t)} > /c{n}" for n, t in enumerate(HOSTILE[7:])),
            f"printf %s {long} > /long",
            'printf %s "$0" > /name; ls -A / > /root/files; id -u > /id',
        ),
    )
    image = unpack(build(box_home, recipe, quiet).reference, tmp_path)
    found = [read(image, f"r{n}").decode() for n in range(7)]
    found += [read(image, f"c{n}").decode() for n in range(len(HOSTILE) - 7)]
    assert found == HOSTILE
    assert read(image, "long") == long.encode()
    assert read(image, "id") == b"0\n"
    assert b".box-build" not in read(image, "root/files")
    assert not [name for name in image.getnames() if "box-build" in name]
    assert_nothing_left(box_home, before)


def test_users_and_files_are_as_declared(box_home: Path, tmp_path: Path) -> None:
    files = (
        NewFile("/srv/a b/'$HOME\"\\é", "one\r\n\ttwo\n", "0640"),
        NewFile("/etc/hosts", "127.0.0.1 me\n", "0600"),
        NewFile("/etc/hostname", "me\n"),
        NewFile("/sbin/tool", '#!/bin/sh\necho "$1" > /ran\n', "4755"),
        NewFile("/empty", ""),
        NewFile("/big", "é" * 100_000),
    )
    recipe = Recipe(
        BUSYBOX,
        users=(NewUser("dev", "/bin/ash"), NewUser("eve")),
        files=files,
        run=("tool first", "su dev -c 'id -un; id -u; echo $HOME; touch ~/mine' > /who"),
    )
    image = unpack(build(box_home, recipe, quiet).reference, tmp_path)
    for one in files:
        name = one.path[1:].replace("sbin/", "bin/")
        assert read(image, name) == one.content.encode()
        assert facts(image, name) == (int(one.mode, 8), 0, 0)
    assert read(image, "ran") == b"first\n"
    assert read(image, "who") == b"dev\n1000\n/home/dev\n"
    assert facts(image, "home/dev") == (0o700, 1000, 1000)
    assert facts(image, "home/dev/mine") == (0o644, 1000, 1000)
    assert facts(image, "home/eve") == (0o700, 1001, 1001)
    assert b"dev:x:1000:1000::/home/dev:/bin/ash\n" in read(image, "etc/passwd")
    assert not [name for name in image.getnames() if "box-build" in name]


def hostile_archive(path: Path) -> Path:
    """An image with a user, an environment, and the name of an image that somebody else has."""
    made = layout(
        [
            layer(
                file(b"bin/busybox", Path("/bin/busybox").read_bytes(), 0o755),
                symlink(b"bin/sh", b"busybox"),
                folder(b"work", 0o777),
                file(b"etc/passwd", b"me:x:7:8::/:/bin/sh\n"),
            )
        ],
        {
            "Env": ['A=b "$c" \\', "B="],
            "WorkingDir": "/work",
            "User": "me",
            "OnBuild": ["RUN touch /onbuild"],
        },
    )
    for one in made.index["manifests"]:
        one["annotations"] = {"org.opencontainers.image.ref.name": "localhost/victim:1"}
    return made.pack(path)


def test_an_archive_is_a_base_and_its_configuration_stays(box_home: Path, tmp_path: Path) -> None:
    base = f"oci-archive:{hostile_archive(tmp_path / 'a b.tar')}"
    step = 'busybox id -u > /id; busybox pwd > /pwd; printf %s "$A" > /a'
    built = build(box_home, Recipe(base, run=(step,)), quiet)
    assert built.config == ImageConfig(('A=b "$c" \\', "B="), "/work", "me")
    image = unpack(built.reference, tmp_path)
    assert (read(image, "id"), read(image, "pwd"), read(image, "a")) == (
        b"0\n",
        b"/work\n",
        b'b "$c" \\',
    )
    assert "onbuild" not in image.getnames()
    stored = podman.image_config(built.reference)
    assert (stored.user, stored.working_dir) == ("me", "/work")
    assert set(built.config.env) < set(stored.env)
    assert not podman.image_exists("localhost/victim:1"), "it took a name of the user's"
    assert build_image(box_home, Recipe(base, run=(step,)), quiet).config == built.config


def archive_in(path: Path, working_dir: str, *links: bytes) -> str:
    """A base whose steps would begin in this directory."""
    shell = file(b"bin/busybox", Path("/bin/busybox").read_bytes(), 0o755)
    ways = [symlink(b"out%d" % number, to) for number, to in enumerate(links)]
    made = layout(
        [layer(shell, symlink(b"bin/sh", b"busybox"), *ways)], {"WorkingDir": working_dir}
    )
    return f"oci-archive:{made.pack(path)}"


@pytest.mark.parametrize(
    "working_dir", ["/proc/self/fd/7", "//proc/1/cwd", "/x/../proc/self/fd/3", "/sys/fs", "/dev/fd"]
)
def test_no_step_begins_in_a_directory_of_the_hosts_kernel(
    box_home: Path, tmp_path: Path, working_dir: str
) -> None:
    base = archive_in(tmp_path / "a.tar", working_dir)
    with pytest.raises(Refused, match="is no directory of the base"):
        build(box_home, Recipe(base, run=("busybox touch ran",)), quiet)


@pytest.mark.timeout(300)
def test_a_link_to_a_descriptor_of_the_runtimes_is_no_way_out_of_a_build(
    box_home: Path, tmp_path: Path
) -> None:
    links = [b"/proc/self/fd/%d" % number for number in (7, 8)]
    for number in range(len(links)):
        base = archive_in(tmp_path / f"{number}.tar", f"/out{number}", *links)
        step = "busybox cat ../../../../../../../etc/shadow > /seen; true"
        # It cannot begin there, or it begins inside.
        with contextlib.suppress(BuildFailed):
            built = build(box_home, Recipe(base, run=(step,)), quiet)
            assert read(unpack(built.reference, tmp_path), "seen") == b""


def import_base(name: str, *members: tuple[object, bytes], change: str = "CMD true") -> None:
    data = layer(
        file(b"bin/busybox", Path("/bin/busybox").read_bytes(), 0o755),
        symlink(b"bin/sh", b"busybox"),
        symlink(b"bin/touch", b"busybox"),
        symlink(b"bin/cat", b"busybox"),
        *members,  # type: ignore[arg-type]
    )
    tool("import", "--quiet", f"--change={change}", "-", name, data=data)


def test_an_image_of_podmans_is_a_base(box_home: Path, tmp_path: Path) -> None:
    import_base("localhost/base:1", change="ENV A=1")
    recipe = Recipe("localhost/base:1", run=(f"{UUID} > /uuid",))
    image = build_image(box_home, recipe, quiet)
    assert image.config.env == podman.image_config("localhost/base:1").env
    assert built_image(box_home, recipe) == image
    assert build_image(box_home, recipe, pytest.fail) == image
    plain = build_image(box_home, Recipe("localhost/base:1"), quiet)
    assert plain.digest != image.digest
    assert built_image(box_home, "localhost/base:1") == plain, "a recipe took the base's place"
    first = build(box_home, recipe, quiet).reference
    import_base("localhost/base:1", file(b"changed"))
    assert built_image(box_home, recipe) == image, "a start takes what the last build gave"
    assert build_image(box_home, recipe, quiet).digest != image.digest
    second = build(box_home, recipe, quiet).reference
    assert second != first
    assert "changed" in unpack(second, tmp_path).getnames()


def test_what_a_base_wants_to_happen_on_a_build_does_not(
    box_home: Path, tmp_path: Path, before: set[Path]
) -> None:
    import_base("localhost/plain:1")
    (tmp_path / "Containerfile").write_text(
        "FROM localhost/plain:1\nONBUILD RUN --mount=type=bind,target=/context touch /onbuild\n"
    )
    tool("build", "--quiet", "--format=docker", "--tag=localhost/trigger:1", str(tmp_path))
    (tmp_path / "Containerfile").write_text("FROM localhost/trigger:1\n")
    tool("build", "--quiet", "--tag=localhost/triggered:1", str(tmp_path))
    assert "onbuild" in unpack("localhost/triggered:1", tmp_path).getnames(), "the trigger is none"
    built = build(box_home, Recipe("localhost/trigger:1", run=("touch /done",)), quiet)
    names = unpack(built.reference, tmp_path).getnames()
    assert "done" in names
    assert "onbuild" not in names
    assert_nothing_left(box_home, before)


def test_nothing_is_built_twice(box_home: Path, tmp_path: Path) -> None:
    recipe = Recipe(BUSYBOX, users=(NewUser("dev"),), run=(f"{UUID} > /uuid",))
    told: list[str] = []
    first = build(box_home, recipe, told.append)
    assert any("run[0]" in text for text in told)
    told.clear()
    assert build(box_home, recipe, told.append) == first
    assert not told
    longer = dataclasses.replace(recipe, runcmd=("true",))
    second = build(box_home, longer, quiet)
    assert second.reference != first.reference
    assert read(unpack(second.reference, tmp_path), "uuid") == read(
        unpack(first.reference, tmp_path), "uuid"
    ), "a step that has not changed was run again"


def test_a_step_that_fails_is_told_with_its_last_lines(box_home: Path, before: set[Path]) -> None:
    noise = "for i in $(seq 100); do echo line $i; done; head -c 300000 /dev/zero; echo"
    recipe = Recipe(BUSYBOX, run=("true", f"{noise}; printf '\\033[31mred\\007\\rend\\n'; exit 3"))
    with pytest.raises(BuildFailed) as caught:
        build(box_home, recipe, quiet)
    assert "run[1]: for i in $(seq 100)" in caught.value.brief
    lines = str(caught.value.details).splitlines()
    assert len(lines) == 20
    assert max(map(len, lines)) <= 500
    assert lines[-3:-1] == ["\\x1b[31mred\\x07", "end"]
    assert lines[0].startswith("line ")
    assert "status 3" in lines[-1]
    assert str(caught.value).isprintable() or "\n" in str(caught.value)
    assert all(line.isprintable() for line in str(caught.value).splitlines())
    assert_nothing_left(box_home, before)
    first = f"echo before {secrets.token_hex(4)}"  # nothing is printed by a step of the cache
    short = dataclasses.replace(recipe, run=(first, "echo after; false"))
    with pytest.raises(BuildFailed, match=r"run\[1\]: echo after; false failed") as caught:
        build(box_home, short, quiet)
    assert str(caught.value.details).splitlines()[:-1] == ["after"]


def test_progress_is_one_line_at_a_time(box_home: Path) -> None:
    told: list[str] = []
    mark = secrets.token_hex(4)
    step = f"echo {mark}; sleep 0.3; printf '\\033[31m'; head -c 9999 /dev/zero | tr '\\0' y; echo"
    build(box_home, Recipe(BUSYBOX, run=(step, "sleep 7")), told.append)
    assert mark in told
    assert all(text.isprintable() and len(text) <= 200 for text in told)
    assert any(text.startswith("\\x1b[31myyyy") for text in told)
    assert "run[1]: sleep 7 (5 s)" in told or "run[1]: sleep 7 (6 s)" in told


def test_a_missing_base_is_told_and_not_pulled(box_home: Path) -> None:
    with pytest.raises(Missing, match=r"no image docker\.io/library/absent:1") as caught:
        build(box_home, Recipe("docker.io/library/absent:1", run=("true",)), quiet)
    assert caught.value.hint == "podman pull docker.io/library/absent:1"


def test_a_user_that_cannot_be_made_is_told(box_home: Path, before: set[Path]) -> None:
    with pytest.raises(BuildFailed, match="users: dev") as caught:
        build(box_home, Recipe(BUSYBOX, users=(NewUser("dev", sudo=True),)), quiet)
    assert "sudo is not in the image: add it to packages" in str(caught.value.details)
    assert_nothing_left(box_home, before)


def test_a_step_sees_little_of_the_host(
    box_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    fake = tmp_path / "podman"
    fake.write_text(f"#!/bin/sh\ntouch {ran}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    hostile = {
        "HOSTSECRET": "x",
        "http_proxy": "http://127.0.0.1:1",
        "CONTAINER_HOST": "tcp://127.0.0.1:1",
        "BUILDAH_ISOLATION": "chroot",
        "BUILDAH_LAYERS": "false",
        "BUILDAH_FORMAT": "docker",
        "TMPDIR": "/nonexistent",
    }
    for name, value in hostile.items():
        monkeypatch.setenv(name, value)
    step = "env > /env; cat /proc/self/status > /status; echo /proc/[0-9]* > /pids"
    built = build(box_home, Recipe(BUSYBOX, run=(step,)), quiet)
    image = unpack(built.reference, tmp_path)
    names = {line.partition("=")[0] for line in read(image, "env").decode().splitlines()}
    assert names <= {"HOSTNAME", "SHLVL", "HOME", "PATH", "PWD"}
    status = dict(line.split(":\t") for line in read(image, "status").decode().splitlines())
    # chown dac_override fowner fsetid kill setgid setuid sys_chroot setfcap (capability.h)
    expected = sum(1 << bit for bit in (0, 1, 3, 4, 5, 6, 7, 18, 31))
    assert {int(status[f"Cap{which}"], 16) for which in ("Prm", "Eff", "Bnd")} == {expected}
    assert int(status["Seccomp"]) == 2
    assert int(read(image, "pids").split()[0].removeprefix(b"/proc/")) == 1
    assert len(read(image, "pids").split()) < 5
    assert not ran.exists(), "a podman of the caller's PATH was run"


def test_podman_is_asked_for_exactly_this() -> None:
    capabilities = "CHOWN,DAC_OVERRIDE,FOWNER,FSETID,KILL,SETFCAP,SETGID,SETUID,SYS_CHROOT"
    expected = ["build", "--pull=never", "--format=oci", "--http-proxy=false", "--pid=private"]
    expected += ["--ipc=private", "--identity-label=false", "--cap-drop=all"]
    expected += [f"--cap-add={capabilities}", "--network=none", "--from=base", "--tag=name"]
    expected += ["--file=/d/Containerfile", "/d/context"]
    assert podman_build.arguments(Path("/d"), "base", "name", network=False) == expected
    expected.remove("--network=none")
    assert podman_build.arguments(Path("/d"), "base", "name", network=True) == expected


def running(mark: str) -> set[int]:
    """Return the processes that have these bytes in their command line."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if mark.encode() in path.read_bytes():
                found.add(int(path.parent.name))
    return found - {os.getpid()}


def stubborn(mark: str) -> str:
    """Return a step that wants no end, in three processes."""
    return f"trap '' INT TERM HUP; (while :; do sleep 9{mark}; done) & sleep 8{mark}; sleep 7{mark}"


@contextlib.contextmanager
def stubborn_build(home: Path, mark: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a build in a process of its own and yield it in the middle of its last step."""
    argv = [sys.executable, "-c", BUILD, str(home), f": {mark}", stubborn(mark)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        try:
            deadline = time.monotonic() + 60
            while not running(f"sleep\x008{mark}"):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield child
        finally:
            child.kill()


@pytest.fixture
def mark() -> str:
    return str(secrets.randbelow(900_000) + 100_000)


def test_an_interrupted_build_leaves_nothing(box_home: Path, mark: str, before: set[Path]) -> None:
    with stubborn_build(box_home, mark) as child:
        child.send_signal(signal.SIGINT)
        assert child.stderr is not None
        assert b"KeyboardInterrupt" in child.stderr.read()
        assert running(mark) == set()
        assert_nothing_left(box_home, before)


def test_an_impatient_user_leaves_no_process(box_home: Path, mark: str, before: set[Path]) -> None:
    with stubborn_build(box_home, mark) as child:
        # The second one comes while /proc is looked through because of the first one.
        child.send_signal(signal.SIGINT)
        time.sleep(0.004)
        child.send_signal(signal.SIGINT)
        child.wait(30)
        assert running(mark) == set()
    assert not {path for path in traces() - before if path.parts[1] == "var"}
    # Podman was killed before it could clean up, and so were we: the next build sweeps our files.
    for container in tool("ps", "--all", "--external", "--quiet").split():
        tool("rm", "--force", container)
    for path in traces() - before:
        subprocess.run([path.parent.name, "delete", "--force", path.name], check=True)


def test_a_build_ends_when_whoever_is_told_of_it_says_so(
    box_home: Path, mark: str, before: set[Path]
) -> None:
    raised: list[BaseException] = []

    def stop(text: str) -> None:
        if text.endswith(" s)"):  # nothing comes from the step: only the clock
            raise KeyboardInterrupt

    def run() -> None:
        try:
            build(box_home, Recipe(BUSYBOX, run=(stubborn(mark),)), stop)
        except BaseException as error:  # noqa: BLE001 - looked at below
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert [type(error) for error in raised] == [KeyboardInterrupt]
    assert running(mark) == set()
    assert_nothing_left(box_home, before)


@pytest.mark.timeout(400)
def test_packages_of_debians_are_installed(
    box_home: Path, tmp_path: Path, debian: Path, before: set[Path]
) -> None:
    base = f"oci-archive:{debian}"
    recipe = Recipe(
        base,
        pkgmgr="apt",
        packages=("hello", "sudo"),
        users=(NewUser("dev", "/bin/bash", sudo=True), NewUser("games", "/bin/dash")),
        files=(NewFile("/etc/profile.d/x.sh", "export X=1\n"),),
        run=(
            "hello > /hello",
            "su dev -c 'sudo -n id -u' > /sudo",
            "/usr/sbin/visudo --check --quiet",
            "printf %s '$HOME \"\\\" é' > /text",
        ),
    )
    image = unpack(build(box_home, recipe, quiet).reference, tmp_path)
    assert read(image, "hello") == b"Hello, world!\n"
    assert read(image, "sudo") == b"0\n"
    assert read(image, "text").decode() == '$HOME "\\" é'
    assert read(image, "etc/profile.d/x.sh") == b"export X=1\n"
    assert facts(image, "home/dev") == (0o700, 1000, 1000)
    assert facts(image, "home/dev/.profile") == (0o644, 1000, 1000)
    assert b"\ndev:*::0:99999:7:::\n" in read(image, "etc/shadow")
    assert b"\ngames:x:5:60:games:/usr/games:/bin/dash\n" in read(image, "etc/passwd")
    assert facts(image, "usr/bin/sudo")[0] == 0o4755
    assert not [name for name in image.getnames() if name.startswith("var/lib/apt/lists/")]
    assert not [name for name in image.getnames() if name.endswith(".deb")]
    with pytest.raises(BuildFailed, match="packages: hell") as caught:
        build(box_home, dataclasses.replace(recipe, packages=("hell.",)), quiet)
    assert "hell." in str(caught.value.details)
    assert json.loads(tool("image", "inspect", build(box_home, recipe, quiet).reference))
    assert_nothing_left(box_home, before)
