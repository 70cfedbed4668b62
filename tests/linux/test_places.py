from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.confinement import judging
from reconciler.confinement.facts import Fact, Verdict
from reconciler.linux import identity, places, reading
from tests.confinement.readings import POLICY

SLEEPER = "import sys; print('ready', flush=True); sys.stdin.read()"


@contextmanager
def opened(path: Path | str) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def started(*command: str, cwd: Path | None = None) -> Iterator[int]:
    """A process that has said that it is ready; its PID."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=cwd)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield child.pid
    finally:
        child.communicate(timeout=10)


def facts(pid: int) -> dict[str, Fact]:
    who = identity.identify(pid)
    assert who is not None
    return {fact.promise: fact for fact in judging.judge(POLICY, reading.read_process(who, POLICY))}


def masks(tree: Path, *paths: str) -> dict[str, str]:
    with opened(tree) as fd:
        return places.read_masks(fd, paths)


def test_a_mask_is_the_null_device_or_an_empty_directory(tmp_path: Path) -> None:
    proc = tmp_path / "root" / "proc"
    (proc / "acpi").mkdir(parents=True)
    assert masks(tmp_path, "/proc/acpi", "/proc/keys") == {
        "/proc/acpi": "empty",
        "/proc/keys": "absent",
    }


def test_whatever_else_lies_there_is_told(tmp_path: Path) -> None:
    proc = tmp_path / "root" / "proc"
    (proc / "acpi" / "wakeup").mkdir(parents=True)
    (proc / "keys").write_text("secret")
    # A link to the null device is none: whoever can make it can make it lead elsewhere.
    (proc / "kcore").symlink_to("/dev/null")
    (proc / "scsi").symlink_to("acpi")
    found = masks(tmp_path, "/proc/acpi", "/proc/keys", "/proc/kcore", "/proc/scsi")
    assert found["/proc/acpi"] == "a directory of 1"
    assert all(found[path].startswith("something else") for path in list(found)[1:])


@pytest.mark.root
@pytest.mark.parametrize(("minor", "said"), [(3, "null"), (5, "something else (mode 20600)")])
def test_a_device_is_known_by_its_number(tmp_path: Path, minor: int, said: str) -> None:
    proc = tmp_path / "root" / "proc"
    proc.mkdir(parents=True)
    os.mknod(proc / "keys", stat.S_IFCHR | 0o600, os.makedev(1, minor))
    assert masks(tmp_path, "/proc/keys") == {"/proc/keys": said}


def test_a_place_tells_the_mount_it_is_on(tmp_path: Path) -> None:
    with started(sys.executable, "-c", SLEEPER, cwd=tmp_path) as pid, opened(f"/proc/{pid}") as fd:
        assert places.read_place(fd, "root").text == "/"
        here = places.read_place(fd, "cwd")
        assert here.text == str(tmp_path)
        with opened(tmp_path) as mine:
            assert here.mount_id == places.mount_id(mine)
        assert places.read_place(fd, "exe").text == os.path.realpath(sys.executable)


@pytest.mark.root
def test_a_mere_chroot_is_found(tmp_path: Path) -> None:
    """Its mountinfo shows what is below its root only, and would look clean."""
    code = f"import os; os.chroot({str(tmp_path)!r}); os.chdir('/'); {SLEEPER}"
    with started("unshare", "--mount", sys.executable, "-c", code) as pid:
        found = facts(pid)["root"]
    assert found.verdict is Verdict.DIFFERS
    assert f"its root is {tmp_path}" in found.have


def test_a_working_directory_elsewhere_is_found(tmp_path: Path) -> None:
    with started(sys.executable, "-c", SLEEPER, cwd=tmp_path) as pid:
        found = facts(pid)["root"]
    assert f"its working directory is {tmp_path}" in found.have


def test_a_thread_with_a_working_directory_of_its_own_is_found(tmp_path: Path) -> None:
    code = f"""
import ctypes, os, threading
ready, done = threading.Event(), threading.Event()
def elsewhere():
    ctypes.CDLL(None).unshare(0x200)  # CLONE_FS
    os.chdir({str(tmp_path)!r})
    ready.set()
    done.wait()
threading.Thread(target=elsewhere, daemon=True).start()
ready.wait()
{SLEEPER}
"""
    with started(sys.executable, "-c", code, cwd=Path("/")) as pid:
        found = facts(pid)["root"]
    assert found.verdict is Verdict.DIFFERS
    assert "it is somewhere else" in found.have


def test_a_controlling_terminal_is_found() -> None:
    ours, theirs = os.openpty()
    try:
        # The first terminal that a session's leader opens becomes its own.
        code = f"import os; os.open({os.ttyname(theirs)!r}, os.O_RDWR); {SLEEPER}"
        with started("setsid", sys.executable, "-c", code) as pid:
            found = facts(pid)["terminal"]
    finally:
        os.close(ours)
        os.close(theirs)
    assert found.verdict is Verdict.DIFFERS
    assert found.have.startswith(f"PID {pid}: device ")


@pytest.mark.root
def test_what_is_not_dumpable_is_unreadable_to_its_own_user_and_never_same() -> None:
    """prctl(2) PR_SET_DUMPABLE: same UID, and yet links and maps are shut."""
    code = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); " + SLEEPER
    reader = """
import json, sys
from reconciler.confinement import judging
from reconciler.linux import identity, reading
from tests.confinement.readings import POLICY
who = identity.identify(int(sys.argv[1]))
facts = judging.judge(POLICY, reading.read_process(who, POLICY))
print(json.dumps({fact.promise: fact.verdict for fact in facts}))
"""
    with started(sys.executable, "-c", code) as pid:
        # Root without its privileges is the same user, and nothing more.
        done = subprocess.run(
            ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", reader,
             str(pid)],
            capture_output=True, text=True, timeout=30, check=True,
        )  # fmt: skip
    for promise in ("root", "program", "files.open", "files.kinds", "namespace.net"):
        assert f'"{promise}": "unreadable"' in done.stdout
