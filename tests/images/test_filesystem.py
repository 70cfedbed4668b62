from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import BinaryIO

import pytest

from reconciler.images.filesystem import make_from_tar, make_from_tree
from reconciler.images.tar import Header, Kind
from reconciler.images.tarwriter import END
from reconciler.linux.process import CommandFailed, run
from tests.images.archives import file, folder, hard_link, layer, special, symlink

MEMBERS = (
    folder(b"d", 0o1777, uid=3, gid=4),
    symlink(b"d/link", b"../../../../etc/shadow"),
    special(b"d/fifo", Kind.FIFO),
    file(b"d/setuid", b"\x7fELF", mode=0o6755, uid=1_000_000, gid=4_000_000_000),
    hard_link(b"d/again", b"d/setuid"),
    file(b"d/\xff\xfe new\nline -rf", b"odd"),
    file(b"d/" + b"n" * 255, b"long"),
    file(b"/".join([b"e" * 100] * 20), b"deep"),
)


NEWEST = 1_700_000_000
MAKE = """
import sys
from pathlib import Path
from reconciler.images.filesystem import make_from_tar
data = sys.stdin.buffer.read()
make_from_tar(lambda stream: stream.write(data), int(sys.argv[1]), Path(sys.argv[2]))
"""


def listing(path: Path) -> str:
    argv: list[str | Path] = ["unsquashfs", "-lln", "-d", "", path]
    return run(argv, timeout_seconds=60).stdout.decode(errors="backslashreplace")


def test_a_tar_stream_becomes_squashfs_with_its_owners(tmp_path: Path) -> None:
    image = make_from_tar(lambda stream: write(stream, layer(*MEMBERS)), NEWEST, tmp_path)
    assert image.fstype == "squashfs"
    found = {line.split()[-1]: line.split()[:2] for line in listing(image.path).splitlines()}
    assert found["/d"] == ["drwxrwxrwt", "3/4"]
    assert found["/d/setuid"] == ["-rwsr-sr-x", "1000000/4000000000"]
    assert found["/d/again"] == found["/d/setuid"]
    assert found["/d/fifo"][0].startswith("p")
    assert found["/d/" + "n" * 255][0] == "-rw-r--r--"
    assert "/d/link -> ../../../../etc/shadow" in listing(image.path)


@pytest.mark.parametrize(
    "prefix",
    [
        pytest.param((), id="self"),
        pytest.param(
            ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
            id="other",
            marks=pytest.mark.root,
        ),
    ],
)
def test_the_root_directory_is_the_guests_roots_alone(
    box_home: Path, prefix: tuple[str, ...]
) -> None:
    path = box_home / "out"
    path.mkdir()
    path.chmod(0o777)
    box_home.chmod(0o711)
    subprocess.run(
        [*prefix, "/usr/bin/python3", "-c", MAKE, str(NEWEST), str(path)],
        input=layer(*MEMBERS),
        cwd=Path(__file__).parents[2],
        check=True,
    )
    first = listing(path / "root.squashfs").splitlines()[0].split()
    assert first[:2] == ["drwxr-xr-x", "0/0"]
    assert first[3] == "2023-11-14", "the time of the build"


@pytest.mark.root
def test_capabilities_of_files_are_kept_and_host_labels_are_not(tmp_path: Path) -> None:
    capability = bytes.fromhex("0100000200200000000000000000000000000000")
    header = Header(b"ping", Kind.FILE, 0o755, xattrs=((b"security.capability", capability),))
    image = make_from_tar(lambda stream: write(stream, layer((header, b""))), NEWEST, tmp_path)
    run(["unsquashfs", "-q", "-n", "-d", tmp_path / "out", image.path], timeout_seconds=60)
    assert os.getxattr(tmp_path / "out/ping", "security.capability") == capability


def test_names_that_are_not_text_come_out_as_they_went_in(tmp_path: Path) -> None:
    image = make_from_tar(lambda stream: write(stream, layer(*MEMBERS)), NEWEST, tmp_path)
    argv: list[str | Path] = ["unsquashfs", "-q", "-n", "-d", tmp_path / "out", image.path]
    run(argv, timeout_seconds=60, check=False)  # an ordinary user cannot give files away
    names = {bytes(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*")}
    assert {header.name for header, _ in MEMBERS} <= names


def test_the_same_stream_gives_the_same_bytes(tmp_path: Path) -> None:
    images = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        image = make_from_tar(
            lambda stream: write(stream, layer(*MEMBERS)), NEWEST, tmp_path / name
        )
        images.append(image.path.read_bytes())
    assert images[0] == images[1]


def test_an_empty_stream_is_an_empty_filesystem(tmp_path: Path) -> None:
    image = make_from_tar(lambda stream: write(stream, END), NEWEST, tmp_path)
    assert len(listing(image.path).splitlines()) == 1


def test_an_error_in_the_stream_is_raised_as_it_was(tmp_path: Path) -> None:
    def broken(stream: BinaryIO) -> None:
        stream.write(layer(*MEMBERS)[:1000])
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        make_from_tar(broken, NEWEST, tmp_path)


def test_a_program_that_fails_does_not_leave_the_stream_waiting(tmp_path: Path) -> None:
    (tmp_path / "root.squashfs").mkdir()  # in the way of the output
    big = layer(file(b"big", bytes(5 << 20)))
    with pytest.raises(CommandFailed, match="sqfstar"):
        make_from_tar(lambda stream: write(stream, big), NEWEST, tmp_path)


def test_a_tree_becomes_erofs_owned_by_root(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").write_bytes(b"data" * 10_000)
    images = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        image = make_from_tree(tree, tmp_path / name)
        assert image.fstype == "erofs"
        images.append(image.path.read_bytes())
        (tree / "file").touch()
    assert images[0] == images[1], "times or random bytes went into it"
    run(["fsck.erofs", image.path], timeout_seconds=60)


def write(stream: BinaryIO, data: bytes) -> None:
    stream.write(data)
