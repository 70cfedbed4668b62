"""The escape suite, run whole in both isolations, and against launches that are too weak.

What an ordinary user starts under strict differs from root's by whose the subordinate IDs are; that
is read back in tests/engine/test_ordinary_user.py and tests/security/test_mutations.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.images.kernel import fetch_kernel
from tests.linux.ordinary_user import OrdinaryUser, made
from tests.live import live, quiet, root_has_ids, until

pytestmark = [pytest.mark.vm, pytest.mark.root]

REPO = Path(__file__).parents[2]
SUITE = "security/escape-test.sh"
SENTENCE = re.compile(r"(ok|not ok) - ([^\[]+) \[([^\]]+)\](?: # SKIP (.+))?")
SECONDS = 580
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Result:
    """What one run of the suite printed."""

    status: int
    out: str

    @property
    def failed(self) -> list[str]:
        """The sentences that are not so."""
        return [m[2] for m in map(SENTENCE.fullmatch, self.out.splitlines()) if m and m[1] != "ok"]

    @property
    def passed(self) -> set[str]:
        """The sentences that are so, without those that were skipped."""
        lines = map(SENTENCE.fullmatch, self.out.splitlines())
        return {m[2] for m in lines if m and m[1] == "ok" and not m[4]}


def suite(
    box: Path | str,
    isolation: str,
    home: Path,
    *,
    root: Path = REPO,
    parts: str = "",
    prefix: tuple[str, ...] = (),
) -> Result:
    """Run the suite; `home` is where the guest kernel is taken from."""
    extra = {"ESCAPE_PARTS": parts} if parts else {}
    done = subprocess.run(
        [*prefix, "sh", str(root / SUITE), str(box), isolation],
        env={"PATH": PATH, "HOME": str(home.parent), "BOX_HOME": str(home), **extra},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Result(done.returncode, done.stdout)


def folders() -> set[str]:
    """What runs of the suite have in /tmp."""
    return {path.name for path in Path("/tmp").glob("box-escape-*")}


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A BOX_HOME with a guest kernel."""
    with root_has_ids(), live() as it:
        fetch_kernel(it.home, quiet)
        yield it.home


@pytest.fixture(scope="module")
def user(home: Path) -> Iterator[OrdinaryUser]:
    """An ordinary user with a checkout in src/ that runs, and a kernel."""
    with made() as it:
        packages = Path(sys.prefix, "lib").glob("python3.*/site-packages")
        for each in packages:
            below = it.home / "src/.venv" / each.relative_to(sys.prefix)
            # Linked, not copied: they stay root's, and readable.
            shutil.copytree(each, below, copy_function=linked)
        shutil.copytree(REPO / "security", it.home / "src/security", dirs_exist_ok=True)
        (it.home / ".box").mkdir(mode=0o700)
        shutil.copytree(home / "kernels", it.home / ".box/kernels")
        launcher = it.home / "src/box"
        launcher.write_text(
            f'#!/bin/sh\nexec /usr/bin/python3 -I -S {it.home}/src/reconciler/__main__.py "$@"\n'
        )
        launcher.chmod(0o755)
        subprocess.run(
            ["chown", "-R", f"{it.uid}:{it.gid}", it.home / ".box", launcher],
            check=True,
            timeout=60,
        )
        yield it


def linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.mark.timeout(600)
def test_no_attempt_succeeds_under_strict_as_root(home: Path) -> None:
    before = folders()
    result = suite(REPO / "box", "strict", home)
    assert (result.failed, result.status) == ([], 0), result.out
    assert len(result.passed) > 130
    assert "its sibling runs as another UID" in result.passed
    assert folders() == before


@pytest.mark.timeout(600)
def test_no_attempt_succeeds_under_standard_as_an_ordinary_user(user: OrdinaryUser) -> None:
    before = folders()
    drop = ("setpriv", "--reuid", str(user.uid), "--regid", str(user.gid), "--clear-groups")
    source = user.home / "src"
    result = suite(source / "box", "standard", user.home / ".box", root=source, prefix=drop)
    assert (result.failed, result.status) == ([], 0), result.out
    assert len(result.passed) > 130
    assert folders() == before


def weakened(folder: Path, edits: dict[str, tuple[str, str]]) -> Path:
    """A box whose every launch and every look is weaker by these edits of its source."""
    for part in ("reconciler", "security"):
        shutil.copytree(REPO / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file, (old, new) in edits.items():
        text = (folder / file).read_text()
        assert text.count(old) == 1, f"{file} has {text.count(old)} times {old!r}"
        (folder / file).write_text(text.replace(old, new))
    (folder / ".venv").symlink_to(sys.prefix)
    program = f"{sys.executable} -I -S {folder}/reconciler/__main__.py"
    return wrapper(folder / "box", f'exec {program} "$@"')


def wrapper(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


WEAKER = {
    "the host's network": (
        {
            "reconciler/confinement/policy.py": ('"uts", "net", "cgroup"', '"uts", "cgroup"'),
            "reconciler/confinement/judging.py": ('have not in {("lo",), ()}', "not have"),
        },
        {
            "its net namespace is neither ours nor its sibling's",
            "the VMM itself does not see the host's abstract sockets",
            "the VMM itself does not see the host's TCP listener",
            "the VMM itself has no network but a loopback",
        },
    ),
    "one mount more": (
        {
            "reconciler/backends/qemu.py": (
                "(*ours, *firmware, *programs)",
                '(*ours, *firmware, *programs, BindMount("/etc/hostname", "/etc/hostname"))',
            )
        },
        {"nothing is mounted in it but its own parts"},
    ),
    "what the runtime sets": (
        {
            "reconciler/backends/qemu.py": ('[_ENV, "-i", *argv]', "[_ENV, *argv]"),
            "reconciler/confinement/places.py": ("have != wanted", "have < wanted"),
        },
        {"its environment is empty"},
    ),
    "eight times the memory": (
        {
            "reconciler/confinement/policy.py": (
                "(ram_mib + VMM_OVERHEAD_MIB) * MIB",
                "(ram_mib + VMM_OVERHEAD_MIB) * MIB * 8",
            )
        },
        {
            "the kernel holds it to the guest's memory and 256 MiB",
            "it gets no swap besides",
        },
    ),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("weaker", WEAKER)
def test_a_box_that_is_weaker_and_says_all_is_well_is_caught(
    home: Path, tmp_path: Path, weaker: str
) -> None:
    edits, sentences = WEAKER[weaker]
    box = weakened(tmp_path, edits)
    result = suite(box, "strict", home, parts="outside")
    assert (set(result.failed), result.status) == (sentences, 1), result.out
    # Its own read-back has let the VM start and run: only another look tells.
    assert "the process that box names has the sandbox's /data open" in result.passed


@pytest.mark.timeout(600)
def test_a_disk_that_others_may_read_is_caught(home: Path, tmp_path: Path) -> None:
    box = wrapper(
        tmp_path / "box",
        f'{REPO}/box "$@"; status=$?; chmod -f 644 "$BOX_HOME"/sandboxes/*/data.img; exit $status',
    )
    result = suite(box, "strict", home, parts="outside")
    assert result.failed == [
        "no file of a sandbox is open to other users: disks, memory, sockets, tokens"
    ], result.out
    assert result.status == 1


@pytest.mark.timeout(600)
def test_ctrl_c_leaves_nothing(home: Path) -> None:
    before = folders()
    with subprocess.Popen(
        ["sh", str(REPO / SUITE), str(REPO / "box"), "strict"],
        env={"PATH": PATH, "HOME": str(home.parent), "BOX_HOME": str(home)},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        assert any(line.startswith("the sandboxes run on") for line in child.stdout)
        (made_here,) = folders() - before
        pids = vmms_of(Path("/tmp", made_here))
        assert len(pids) >= 2
        # As a terminal does: to everybody in the foreground.
        os.killpg(child.pid, signal.SIGINT)
        said = child.stdout.read()
        assert child.wait(100) == 130, said
    assert folders() == before
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 10)


def vmms_of(work: Path) -> list[int]:
    """The VMMs of a run's sandboxes."""
    records = [json.loads(path.read_text()) for path in (work / "home/run").glob("*.json")]
    return [record["identity"]["pid"] for record in records]


def test_what_cannot_be_run_is_neither_well_nor_an_escape(home: Path, tmp_path: Path) -> None:
    assert suite(REPO / "box", "standard", home).status == 2
    assert suite(REPO / "box", "strictly", home).status == 2
    assert suite(tmp_path / "none", "strict", home).status == 2
    before = folders()
    result = suite(REPO / "box", "strict", tmp_path / "empty")
    assert (result.status, "box quickstart" in result.out) == (2, True), result.out
    assert folders() == before


def test_the_scripts_are_clean() -> None:
    shellcheck = shutil.which("shellcheck", path=f"{os.environ['PATH']}:{sys.prefix}/bin")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed")
    for script in (SUITE, "security/escape/attempts.sh"):
        done = subprocess.run(
            [shellcheck, "-x", script],
            cwd=REPO,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout
