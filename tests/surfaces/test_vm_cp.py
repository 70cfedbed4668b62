"""`box cp` with real guests: both ways, streams, and what a hostile guest would have us write."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.live import SMALL, Live, until

pytestmark = [pytest.mark.vm, pytest.mark.root]

MIB = 1 << 20


@pytest.fixture
def web(vms: Live, tmp_path: Path) -> Live:
    vms.declare("web", SMALL)
    vms.box("up", "web")
    (tmp_path / "in").mkdir()
    return vms


def sh(live: Live, script: str) -> bytes:
    return live.box("exec", "web", "--", "sh", "-c", script).stdout


def snapshot(top: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and content, or link target, of everything below a folder."""
    found = {}
    for path in sorted(top.rglob("*")):
        status = path.lstat()
        if path.is_symlink():
            data = os.fsencode(path.readlink())
        else:
            data = path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(top))] = (0 if path.is_symlink() else status.st_mode, data)
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "tree"
    (top / "a" / ("long" * 50)).mkdir(parents=True)
    (top / "a" / ("long" * 50) / "f").write_bytes(os.urandom(3 * MIB + 1))
    (top / "exe").write_bytes(b"#!/bin/sh\necho ran\n")
    (top / "exe").chmod(0o750)
    (top / "empty").write_bytes(b"")
    (top / "link").symlink_to("/no/such")
    (top / os.fsdecode(b"odd \xff\n name")).write_bytes(b"x")
    (top / "shut").mkdir(mode=0o500)
    return top


def test_there_and_back_it_is_the_same(web: Live, tree: Path, tmp_path: Path) -> None:
    assert web.box("cp", str(tree), "web:/tmp/new").stdout == b""
    assert sh(web, "/tmp/new/exe; stat -c %a.%u /tmp/new/exe /tmp/new/shut") == (
        b"ran\n750.0\n500.0\n"
    )
    web.box("cp", "web:/tmp/new", str(tmp_path / "back"))
    assert snapshot(tmp_path / "back") == snapshot(tree)
    web.box("cp", "web:/tmp/new/", f"{tmp_path}/in")
    assert snapshot(tmp_path / "in" / "new") == snapshot(tree)
    web.box("cp", str(tree), "web:/tmp")
    web.box("cp", "web:/tmp/tree/.", f"{tmp_path}/in/dots")
    assert snapshot(tmp_path / "in" / "dots") == snapshot(tree)
    assert not list(tmp_path.rglob(".box-cp-*"))


def test_one_file_goes_as_cp_does(web: Live, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"1")
    web.box("cp", f"{tmp_path}/f", "web:/tmp")
    web.box("cp", f"{tmp_path}/f", "web:/tmp/g")
    assert sh(web, "cd /tmp && cat f g") == b"11"
    web.box("cp", "web:/tmp/f", f"{tmp_path}/in")
    web.box("cp", "web:/tmp/f", f"{tmp_path}/in/g")
    assert {path.name for path in (tmp_path / "in").iterdir()} == {"f", "g"}
    done = web.box("cp", f"{tmp_path}/f", "web:/no/such/place", status=1)
    assert done.stderr == b"box: /no/such/place: No such file or directory\n"
    done = web.box("cp", "web:/no", f"{tmp_path}/in", status=1)
    assert done.stderr == b"box: /no: No such file or directory\n"
    for words in ([f"{tmp_path}/f", "b"], ["web:/a", "web:/b"], ["web:/a"], ["no:/a", "b"]):
        web.box("cp", *words, status=125)


def test_it_belongs_to_the_user(web: Live, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"1")
    (tmp_path / "f").chmod(0o4755)
    web.box("cp", "-u", "nobody", f"{tmp_path}/f", "web:/tmp/f")
    assert sh(web, "stat -c %U.%a /tmp/f") == b"nobody.755\n"
    sh(web, "chmod 700 /root; echo 1 >/root/f")
    assert web.box("cp", "-u", "nobody", "web:/root/f", f"{tmp_path}/in", status=1).stderr == (
        b"box: /root/f: Permission denied\n"
    )
    assert list((tmp_path / "in").iterdir()) == []


def test_streams(web: Live, tree: Path, tmp_path: Path) -> None:
    packed = subprocess.run(
        ["tar", "-C", tree, "-cf", "-", "."], stdout=subprocess.PIPE, check=True
    ).stdout
    sh(web, "mkdir /tmp/s")
    web.box("cp", "-", "web:/tmp/s", stdin=packed)
    out = web.box("cp", "web:/tmp/s", "-").stdout
    subprocess.run(["tar", "-C", tmp_path / "in", "-xpf", "-"], input=out, check=True)
    assert snapshot(tmp_path / "in" / "s") == snapshot(tree)
    done = web.box("cp", "-", "web:/tmp/no", stdin=packed, status=1)
    assert done.stderr == b"box: /tmp/no/: No such file or directory\n"
    assert b"cut short" in web.box("cp", "-", "web:/tmp/s", stdin=packed[:5000], status=125).stderr
    hostile = io.BytesIO()
    with tarfile.open(fileobj=hostile, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("../x"))
    web.box("cp", "-", "web:/tmp/s", stdin=hostile.getvalue(), status=125)


def test_special_files_are_left_out_and_told(web: Live, tmp_path: Path) -> None:
    sh(web, "mkdir /tmp/d; mkfifo /tmp/d/p; touch /tmp/d/f; mknod /tmp/d/null c 1 3")
    done = web.box("cp", "web:/tmp/d", f"{tmp_path}/in")
    assert done.stderr.count(b"left out") == 2
    assert [path.name for path in (tmp_path / "in" / "d").iterdir()] == ["f"]
    os.mkfifo(tmp_path / "in" / "d" / "q")
    done = web.box("cp", f"{tmp_path}/in/d", "web:/tmp/e")
    assert done.stderr.count(b"left out") == 1
    assert sh(web, "ls /tmp/e") == b"f\n"


def test_links_of_the_guest_lead_nowhere_here(web: Live, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"kept")
    sh(web, f"mkdir /tmp/d; ln -s {secret} /tmp/d/f; ln -s {tmp_path} /tmp/d/into; "
            f"ln -s {secret} /tmp/top; echo guest >/tmp/real; ln -s real /tmp/inside")  # fmt: skip
    web.box("cp", "web:/tmp/d", f"{tmp_path}/in")
    assert (tmp_path / "in/d/f").is_symlink()
    sh(
        web,
        "rm -r /tmp/d; mkdir -p /tmp/d/into; echo evil >/tmp/d/f; echo evil >/tmp/d/into/secret",
    )
    done = web.box("cp", "web:/tmp/d", f"{tmp_path}/in", status=125)
    assert b"Nothing was copied" in done.stderr
    done = web.box("cp", "web:/tmp/d/f", f"{tmp_path}/in/d/into", status=125)
    assert b"links are not followed" in done.stderr
    sh(web, "rm -r /tmp/d/into")
    web.box("cp", "web:/tmp/d", f"{tmp_path}/in")
    assert (tmp_path / "in/d/f").read_bytes() == b"evil\n"
    assert secret.read_bytes() == b"kept"
    # What is named is the guest's file, never a link to one of ours.
    web.box("cp", "web:/tmp/inside", f"{tmp_path}/in/named")
    assert not (tmp_path / "in/named").is_symlink()
    web.box("cp", "web:/tmp/top", f"{tmp_path}/in/top", status=1)


def test_names_of_the_guest_do_not_reach_the_screen_as_they_are(web: Live, tmp_path: Path) -> None:
    sh(web, r"mkdir /tmp/d; mkfifo $(printf '/tmp/d/\033[31m')")
    done = web.box("cp", "web:/tmp/d", f"{tmp_path}/in")
    assert b"\x1b" not in done.stderr
    assert rb"\x1b[31m" in done.stderr


def test_a_guest_that_is_not_done_leaves_nothing(web: Live, tmp_path: Path) -> None:
    sh(web, "mkdir /tmp/d; dd if=/dev/zero of=/tmp/d/f bs=1M count=64 2>/dev/null")
    for signo in (signal.SIGINT, signal.SIGTERM):
        child = web.start("cp", "web:/tmp/d", f"{tmp_path}/in")
        until(lambda: list((tmp_path / "in").glob(".box-cp-*/d/f")))
        child.send_signal(signo)
        assert child.wait(30) == 128 + signo
        assert list((tmp_path / "in").iterdir()) == []
    web.box("cp", "--timeout", "0.2", "web:/tmp/d", f"{tmp_path}/in", status=124)
    assert list((tmp_path / "in").iterdir()) == []
    child = web.start("cp", "web:/tmp/d", f"{tmp_path}/in")
    until(lambda: list((tmp_path / "in").glob(".box-cp-*/d/f")))
    os.kill(web.pid("web"), signal.SIGKILL)
    assert child.wait(30) == 125
    assert list((tmp_path / "in").iterdir()) == []


def test_a_full_disk_leaves_nothing(web: Live, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4M", "none", small], check=True)
    try:
        sh(web, "mkdir /tmp/d; dd if=/dev/zero of=/tmp/d/f bs=1M count=16 2>/dev/null")
        done = web.box("cp", "web:/tmp/d", str(small), status=125)
        assert b"No space left" in done.stderr
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", small], check=True)


def test_an_endless_stream_in_waits_for_nobody(web: Live) -> None:
    child = web.start("cp", "-", "web:/no/such")
    assert child.wait(30) != 0
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            ["timeout", "20", str(Path(__file__).parents[2] / "box"), "cp", "-", "web:/no/such"],
            env=web.environment, cwd=web.folder, stdin=reading, capture_output=True, check=False,
        )  # fmt: skip
    finally:
        os.close(reading)
        os.close(writing)
    assert done.returncode == 1
