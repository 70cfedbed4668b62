from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.errors import Busy
from reconciler.linux import cgroups, scopes
from reconciler.linux.cgroups import Hierarchy, Layout, Limits
from reconciler.linux.proc_stat import ParseError

CAPTURED = Path(__file__).parent.parent / "data" / "proc"


def write(directory: Path, **files: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text + "\n")


def v2(mount: Path, root: str = "/") -> Layout:
    names = frozenset({"memory", "pids"})
    return Layout((Hierarchy(2, names, str(mount), root),))


def v1(mount: Path) -> Layout:
    return Layout(
        tuple(
            Hierarchy(1, frozenset({name}), str(mount / name), "/") for name in ("memory", "pids")
        )
    )


def test_layout_of_a_hybrid_host() -> None:
    layout = cgroups.detect((CAPTURED / "host" / "mountinfo").read_bytes())
    assert layout.kind == "hybrid"
    memory = layout.of_controller("memory")
    assert memory is not None
    assert memory.directory("/box/vm") == Path("/sys/fs/cgroup/memory/box/vm")
    paths = layout.paths_of((CAPTURED / "runc-root" / "cgroup").read_bytes())
    assert len(paths) == len(layout.hierarchies) == 10
    assert set(paths.values()) == {"/box-sample"}


def test_layout_of_a_host_whose_systemd_made_a_scope_for_the_vmm() -> None:
    layout = cgroups.detect((CAPTURED / "systemd-host" / "mountinfo").read_bytes())
    assert layout.kind == "v2"
    (hierarchy,) = layout.hierarchies
    data = (CAPTURED / "crun-scope" / "cgroup").read_bytes()
    path = f"{scopes.manager_cgroup(1000)}/user.slice/box-5936d00b-web.scope"
    assert layout.paths_of(data) == {hierarchy: path}
    assert scopes.is_managed(1000, data)


def test_layout_of_version_1_with_joined_controllers() -> None:
    layout = cgroups.detect(
        b"1 0 0:1 / /c/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        b"2 0 0:2 / /c/systemd rw - cgroup x rw,xattr,release_agent=/a,name=systemd\n"
    )
    assert layout.kind == "v1"
    paths = layout.paths_of(b"3:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/c\n")
    assert sorted(paths.values()) == ["/a", "/b"]


def test_devices_of_version_1(tmp_path: Path) -> None:
    layout = Layout((Hierarchy(1, frozenset({"devices"}), str(tmp_path), "/"),))
    write(tmp_path / "box", devices__list="c 1:3 rwm\nb *:* m")
    found = cgroups.read_devices(layout, b"5:devices:/box\n0::/box\n")
    assert found == frozenset({"c 1:3 rwm", "b *:* m"})
    for cgroup in (b"5:devices:/other\n", b"0::/box\n"):
        with pytest.raises(FileNotFoundError):
            cgroups.read_devices(layout, cgroup)
    assert cgroups.read_devices(v2(tmp_path), b"0::/box\n") is None


def test_a_host_without_cgroups() -> None:
    layout = cgroups.detect(b"1 0 0:1 / / rw - ext4 /dev/sda rw\n")
    assert (layout.kind, layout.hierarchies) == ("none", ())


def test_the_widest_of_two_mounts_of_a_hierarchy() -> None:
    layout = cgroups.detect(
        b"1 0 0:1 /inner /a rw - cgroup cgroup rw,pids\n2 0 0:1 / /b rw - cgroup cgroup rw,pids\n"
    )
    assert [each.mount for each in layout.hierarchies] == ["/b"]


def test_a_cgroup_outside_of_what_is_mounted(tmp_path: Path) -> None:
    hierarchy = v2(tmp_path, "/inner").hierarchies[0]
    assert hierarchy.directory("/inner/vm") == tmp_path / "vm"
    for path in ("/other", "/inner/../other", "/"):
        with pytest.raises(FileNotFoundError):
            hierarchy.directory(path)


def test_v2_limits_are_the_least_on_the_way_up(tmp_path: Path) -> None:
    write(tmp_path / "a", pids__max="50", memory__max="max", memory__swap__max="0")
    write(tmp_path / "a/b", pids__max="60", memory__max="1000", memory__swap__max="max")
    limits = cgroups.read_limits(v2(tmp_path), b"0::/a/b\n")
    assert limits == Limits(
        pids=50, memory_bytes=1000, memory_and_swap_bytes=1000, hangs_when_full=False
    )


def test_v2_without_a_swap_limit_is_no_limit(tmp_path: Path) -> None:
    write(tmp_path / "a", pids__max="5", memory__max="1000", memory__swap__max="max")
    limits = cgroups.read_limits(v2(tmp_path), b"0::/a\n")
    assert limits == Limits(
        pids=5, memory_bytes=1000, memory_and_swap_bytes=None, hangs_when_full=False
    )


def test_v2_cgroup_without_the_controllers(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert cgroups.read_limits(v2(tmp_path), b"0::/a\n") == Limits(
        None, None, None, hangs_when_full=False
    )


def test_v1_limits_and_what_it_prints_for_none(tmp_path: Path) -> None:
    none = "9223372036854771712"
    write(
        tmp_path / "memory/a",
        memory__limit_in_bytes="1000",
        memory__memsw__limit_in_bytes=none,
    )
    write(tmp_path / "pids/a", pids__max="max")
    limits = cgroups.read_limits(v1(tmp_path), b"2:memory:/a\n1:pids:/a\n")
    assert limits == Limits(
        pids=None, memory_bytes=1000, memory_and_swap_bytes=None, hangs_when_full=False
    )


@pytest.mark.parametrize("where", ["a", "a/b"])
def test_v1_tells_who_would_hang_when_its_memory_is_used_up(tmp_path: Path, where: str) -> None:
    ends = "oom_kill_disable 0\nunder_oom 0\n"
    for directory in ("a", "a/b", "c"):
        write(tmp_path / "pids" / directory, pids__max="5")
        write(tmp_path / "memory" / directory, memory__oom_control=ends)
    hangs = ends.replace("disable 0", "disable 1")
    for other, text in (("c", hangs), (where, hangs), (where, ends), (where, None)):
        file = tmp_path / "memory" / other / "memory.oom_control"
        file.unlink() if text is None else file.write_text(text)
        limits = cgroups.read_limits(v1(tmp_path), b"2:memory:/a/b\n1:pids:/a/b\n")
        assert limits.hangs_when_full == (other == where and text == hangs)


def test_a_cgroup_that_is_not_there_is_no_cgroup_without_limits(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        cgroups.read_limits(v2(tmp_path), b"0::/gone\n")
    with pytest.raises(FileNotFoundError):
        cgroups.read_limits(v2(tmp_path), b"1:cpu:/a\n")


@pytest.mark.parametrize("text", ["", "-1", "1e9", "0x10", "12 34"])
def test_a_limit_that_is_no_number(tmp_path: Path, text: str) -> None:
    write(tmp_path / "a", pids__max=text, memory__max="1", memory__swap__max="1")
    with pytest.raises(ParseError):
        cgroups.read_limits(v2(tmp_path), b"0::/a\n")


@pytest.fixture
def own() -> Iterator[tuple[Path, ...]]:
    """A cgroup of our own in every hierarchy, removed afterwards with all in it."""
    directories = cgroups.detect().directories(f"/box-test-{secrets.token_hex(4)}")
    try:
        for directory in directories:
            directory.mkdir()
        yield directories
    finally:
        cgroups.kill_all(directories)
        cgroups.remove(directories)


def pids_directory(directories: tuple[Path, ...]) -> Path:
    """The one of them that any process can enter at once: no cpuset."""
    layout = cgroups.detect()
    pids = layout.of_controller("pids")
    assert pids is not None
    return next(each for each in directories if each.is_relative_to(pids.mount))


@pytest.mark.root
def test_processes_are_listed_killed_and_cgroups_removed(own: tuple[Path, ...]) -> None:
    inner = pids_directory(own) / "inner"
    inner.mkdir()
    child = subprocess.Popen(["sleep", "60"])
    (inner / "cgroup.procs").write_text(str(child.pid))
    assert cgroups.list_procs(pids_directory(own)) == {child.pid}
    with pytest.raises(OSError, match="busy"):
        cgroups.remove(own)
    cgroups.kill_all(own)
    assert child.wait(10) == -signal.SIGKILL
    cgroups.remove(own)
    assert not any(each.exists() for each in own)
    # Twice is the same as once.
    cgroups.kill_all(own)
    cgroups.remove(own)


@pytest.mark.root
def test_a_process_that_forks_is_killed_with_its_children(own: tuple[Path, ...]) -> None:
    code = (
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"
    )
    directory = pids_directory(own)
    (directory / "pids.max").write_text("20")
    shell = f"echo $$ > {directory}/cgroup.procs; exec {sys.executable} -c '{code}'"
    child = subprocess.Popen(["sh", "-c", shell])
    while len(cgroups.list_procs(directory)) < 5 and child.poll() is None:
        os.sched_yield()
    cgroups.kill_all(own)
    child.wait(10)
    assert cgroups.list_procs(directory) == frozenset()


@pytest.mark.root
def test_what_does_not_end_is_told(own: tuple[Path, ...]) -> None:
    """Without time, the processes that were just killed are still there."""
    children = [subprocess.Popen(["sleep", "60"]) for _ in range(5)]
    directory = pids_directory(own)
    for child in children:
        (directory / "cgroup.procs").write_text(str(child.pid))
    with pytest.raises(Busy) as caught:
        cgroups.kill_all(own, timeout_seconds=0)
    assert caught.value.details is not None
    assert str(directory.name) in caught.value.details
    for child in children:
        assert child.wait(10) == -signal.SIGKILL


@pytest.mark.root
def test_limits_that_the_kernel_has(own: tuple[Path, ...]) -> None:
    directory = pids_directory(own)
    (directory / "pids.max").write_text("7")
    child = subprocess.Popen(["sleep", "60"])
    try:
        (directory / "cgroup.procs").write_text(str(child.pid))
        group = Path(f"/proc/{child.pid}/cgroup").read_bytes()
        assert cgroups.read_limits(cgroups.detect(), group).pids == 7
    finally:
        child.kill()
        child.wait(10)
