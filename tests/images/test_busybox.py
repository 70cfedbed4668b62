from __future__ import annotations

import os
import stat
from pathlib import Path

from reconciler.images.busybox import find_busybox, make_tree
from reconciler.images.elf import interpreter
from reconciler.linux.process import run


def test_the_busybox_of_the_host_is_static() -> None:
    assert interpreter(find_busybox()) is None


def test_the_tree_has_what_a_guest_and_its_users_expect(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    old = os.umask(0o077)
    try:
        make_tree(find_busybox(), tree)
    finally:
        os.umask(old)
    modes = {name: stat.S_IMODE((tree / name).stat().st_mode) for name in ("", "bin", "tmp", "etc")}
    assert modes == {"": 0o755, "bin": 0o755, "tmp": 0o1777, "etc": 0o755}
    for name in ("data", "dev", "proc", "run", "sys", "root", "tmp"):
        assert (tree / name).is_dir()
    for name in ("bin/sh", "usr/bin/env", "sbin/reboot", "usr/sbin/chroot"):
        assert (tree / name).resolve() == tree / "bin/busybox"
    assert (tree / "etc/passwd").read_text().startswith("root:x:0:0:root:/root:/bin/sh\n")
    assert stat.S_IMODE((tree / "etc/passwd").stat().st_mode) == 0o644


def test_no_link_of_it_leads_out(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    make_tree(find_busybox(), tree)
    links = [path for path in tree.rglob("*") if path.is_symlink()]
    assert len(links) > 100
    assert all(path.resolve().is_relative_to(tree) for path in links)


def test_every_applet_has_its_link(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    make_tree(find_busybox(), tree)
    listed = run([find_busybox(), "--list"], timeout_seconds=30).stdout.decode().split()
    assert {path.name for path in (tree / "bin").iterdir()} == {*listed, "busybox"}
