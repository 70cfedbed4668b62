from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reconciler.boxfile.recipe import Recipe
from reconciler.errors import BoxError, Missing
from reconciler.images.config import ImageConfig
from reconciler.images.rootfs import build_image, built_image
from reconciler.images.tar import BadArchive
from reconciler.images.tar import Kind as Member
from tests.images.archives import file, image_archive, layer, special

KILLED_IN_BUILD = """
import os, signal, sys
from pathlib import Path
from reconciler.images.rootfs import build_image

def progress(message):
    if message.startswith("left out"):  # in the middle: the layers are read, nothing is made yet
        os.kill(os.getpid(), signal.SIGKILL)

build_image(Path(sys.argv[1]), sys.argv[2], progress)
"""
BUILD = """
import sys
from pathlib import Path
from reconciler.images.rootfs import build_image
print("begin", flush=True)
build_image(Path(sys.argv[1]), sys.argv[2], lambda message: None)
"""


def quiet(message: str) -> None:
    assert message


def files(home: Path) -> list[str]:
    """Return every path below `home` except locks."""
    found = (str(path.relative_to(home)) for path in home.rglob("*"))
    return sorted(path for path in found if not path.endswith(".lock"))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    data = layer(file(b"etc/motd", b"hello"), special(b"dev/null", Member.CHARACTER_DEVICE))
    return image_archive(tmp_path / "image.tar", data, config={"Env": ["A=1"]})


def test_busybox_is_built_once_and_found_by_stats_after(box_home: Path) -> None:
    assert built_image(box_home, "builtin:busybox") is None
    image = build_image(box_home, "builtin:busybox", quiet)
    assert image.path == box_home / "images" / image.digest / f"root.{image.fstype}"
    assert stat.S_IMODE(image.path.stat().st_mode) == 0o444
    assert stat.S_IMODE(image.path.parent.stat().st_mode) == 0o700
    assert image.size_bytes == image.path.stat().st_size
    assert image.config == ImageConfig()
    assert built_image(box_home, "builtin:busybox") == image
    assert list((box_home / "tmp").glob("*/")) == []


def test_a_recipe_of_nothing_but_a_base_is_that_base(box_home: Path) -> None:
    image = build_image(box_home, "builtin:busybox", quiet)
    assert build_image(box_home, Recipe("builtin:busybox"), pytest.fail) == image
    assert list(json.loads((box_home / "images/refs.json").read_text())) == ["builtin:busybox"]


def test_an_archive_is_not_read_a_second_time(box_home: Path, archive: Path) -> None:
    base = f"oci-archive:{archive}"
    image = build_image(box_home, base, quiet)
    facts = archive.stat()
    # Other bytes under the same size, inode and time: who reads the file would notice.
    with archive.open("r+b") as stream:
        stream.write(b"\xff" * 100)
    os.utime(archive, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert build_image(box_home, base, pytest.fail) == image
    assert built_image(box_home, base) == image
    assert image.config == ImageConfig(("A=1",))


def test_a_changed_archive_is_built_again(box_home: Path, tmp_path: Path) -> None:
    base = f"oci-archive:{tmp_path}/x.tar"
    images = []
    for text in (b"one", b"two"):
        image_archive(tmp_path / "x.tar", layer(file(b"a", text)))
        images.append(build_image(box_home, base, quiet))
    assert images[0].digest != images[1].digest
    assert images[0].path.exists(), "a running guest may still have it"
    assert built_image(box_home, base) == images[1]


def test_the_same_files_with_another_config_are_another_image(
    box_home: Path, tmp_path: Path
) -> None:
    data = layer(file(b"a", b"x"))
    digests = set()
    for number in range(2):
        path = image_archive(tmp_path / f"{number}.tar", data, config={"Env": [f"A={number}"]})
        digests.add(build_image(box_home, f"oci-archive:{path}", quiet).digest)
    assert len(digests) == 2


@pytest.mark.slow
def test_the_same_image_from_two_files_is_kept_once(box_home: Path, tmp_path: Path) -> None:
    data = layer(file(b"a", b"x"))
    digests = set()
    for number in range(2):
        path = image_archive(tmp_path / f"{number}.tar", data)
        digests.add(build_image(box_home, f"oci-archive:{path}", quiet).digest)
        time.sleep(1.1)  # a time of now in the image would show
    assert len(digests) == 1


def test_an_image_that_was_removed_is_built_again(box_home: Path, archive: Path) -> None:
    base = f"oci-archive:{archive}"
    image = build_image(box_home, base, quiet)
    image.path.unlink()
    (image.path.parent / "meta.json").unlink()
    image.path.parent.rmdir()
    assert built_image(box_home, base) is None
    assert build_image(box_home, base, quiet) == image


def test_a_broken_index_is_only_an_index(box_home: Path, archive: Path) -> None:
    base = f"oci-archive:{archive}"
    image = build_image(box_home, base, quiet)
    (box_home / "images/refs.json").write_bytes(b"{")
    assert build_image(box_home, base, quiet) == image


def test_a_hostile_archive_leaves_nothing(box_home: Path, tmp_path: Path) -> None:
    good = layer(file(b"good"))
    path = image_archive(tmp_path / "x.tar", good, layer(file(b"../escape")))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BadArchive, match="climbs"):
        build_image(box_home, f"oci-archive:{path}", quiet)
    assert files(box_home) == ["tmp"]
    assert sorted(tmp_path.iterdir()) == before


def test_a_missing_archive_is_told(box_home: Path, tmp_path: Path) -> None:
    with pytest.raises(Missing, match="No such file") as caught:
        build_image(box_home, f"oci-archive:{tmp_path}/absent.tar", quiet)
    assert caught.value.hint


def test_a_build_killed_in_the_middle_is_simply_run_again(box_home: Path, archive: Path) -> None:
    base = f"oci-archive:{archive}"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_IN_BUILD, str(box_home), base], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert built_image(box_home, base) is None
    assert len(list((box_home / "tmp").glob("*/"))) == 1
    image = build_image(box_home, base, quiet)
    assert image.path.exists()
    assert list((box_home / "tmp").glob("*/")) == []


def test_a_build_killed_at_any_time_leaves_all_or_nothing(box_home: Path, archive: Path) -> None:
    base = f"oci-archive:{archive}"
    for milliseconds in (0, 2, 5, 10, 20, 30, 50, 80):
        argv = [sys.executable, "-c", BUILD, str(box_home), base]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(milliseconds / 1000)
            child.kill()
        image = built_image(box_home, base)
        if image is not None:
            assert image.size_bytes > 0
    assert build_image(box_home, base, quiet).path.exists()
    assert list((box_home / "tmp").glob("*/")) == []


def test_two_builds_at_once_agree(box_home: Path, archive: Path) -> None:
    argv = [sys.executable, "-c", BUILD, str(box_home), f"oci-archive:{archive}"]
    children = [subprocess.Popen(argv, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert len(list((box_home / "images").glob("*/"))) == 1


def limit_files() -> None:
    """Let no file grow beyond 64 KiB: a disk that is full, without root."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))


def test_a_full_disk_leaves_nothing_half_made(box_home: Path, tmp_path: Path) -> None:
    path = image_archive(tmp_path / "x.tar", layer(file(b"noise", os.urandom(2 << 20))))
    base = f"oci-archive:{path}"
    script = BUILD.replace("build_image(Path", "x = build_image(Path")
    limited = subprocess.run(
        [sys.executable, "-c", script, str(box_home), base],
        check=False,
        capture_output=True,
        preexec_fn=limit_files,
    )
    assert limited.returncode != 0
    assert b"sqfstar" in limited.stderr
    assert files(box_home) == ["tmp"]
    assert build_image(box_home, base, quiet).size_bytes > 2 << 20


@pytest.mark.root
def test_a_really_full_disk_leaves_nothing_half_made(box_home: Path, tmp_path: Path) -> None:
    path = image_archive(tmp_path / "x.tar", layer(file(b"noise", os.urandom(2 << 20))))
    inside = f"""
        mount -t tmpfs -o size=1M tmpfs {box_home} &&
        {sys.executable} -c '{BUILD}' {box_home} oci-archive:{path}; echo status $?
        find {box_home} -type f ! -name '*.lock'
    """
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", inside], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["begin", "status 1"]


@pytest.mark.root
def test_an_ordinary_user_builds_the_same_image(box_home: Path, archive: Path) -> None:
    base = f"oci-archive:{archive}"
    expected = build_image(box_home, base, quiet)
    theirs = box_home / "theirs"
    theirs.mkdir()
    copied = theirs / "image.tar"
    copied.write_bytes(archive.read_bytes())
    for path in (theirs, copied):
        os.chown(path, 65534, 65534)
    box_home.chmod(0o711)
    subprocess.run(
        [
            *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
            *("/usr/bin/python3", "-c", BUILD, str(theirs), f"oci-archive:{copied}"),
        ],
        check=True,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.DEVNULL,
    )
    image = built_image(theirs, f"oci-archive:{copied}")
    assert image is not None
    assert image.digest == expected.digest


def test_errors_of_builds_are_for_users(box_home: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"not a tar" * 1000)
    with pytest.raises(BoxError) as caught:
        build_image(box_home, f"oci-archive:{tmp_path}/x.tar", quiet)
    assert "tar archive" in str(caught.value)
