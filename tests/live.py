"""A home with real VMs, driven through the real command line; nothing of it outlives the test."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from reconciler.engine import records, traces
from reconciler.linux import cgroups, files, subids

REPO = Path(__file__).parent.parent
BOX = REPO / "box"
TIMEOUT_SECONDS = 120.0
SMALL = (
    "version: 1\nbase: builtin:busybox\nisolation: strict\nnetwork: none\ncpus: 1\nram_mib: 256\n"
)
DATA = "data_size: 64M\n"
_IDS = Path("/run/box-tests-ids.lock")
_GIVEN = Path("/run/box-tests-ids.given")


def quiet(_text: str) -> None:
    """A progress that nobody watches."""


@dataclass
class Live:
    """One BOX_HOME and one watched folder."""

    home: Path
    folder: Path
    extra: dict[str, str] = field(default_factory=dict)
    """Variables of the environment besides."""
    _children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """A whole environment for box: nothing of the caller's but its certificates for pip."""
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": os.environ["HOME"],
            "BOX_HOME": str(self.home),
            "BOX_DESIRED": str(self.folder),
            "LANG": "C.UTF-8",
            **self.extra,
        }

    def declare(self, name: str, text: str = SMALL + DATA) -> Path:
        """Write NAME.Boxfile as editors do: whole, by a rename."""
        path = self.folder / f"{name}.Boxfile"
        draft = self.folder / f".{name}.draft"
        draft.write_text(text)
        return draft.rename(path)

    def box(
        self, *arguments: str, stdin: bytes | None = None, status: int | None = 0
    ) -> subprocess.CompletedProcess[bytes]:
        """Run box to its end; `status` is the exit status it must have, None for any."""
        done = subprocess.run(
            [BOX, *arguments],
            env=self.environment,
            cwd=self.folder,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        said = done.stdout[-2000:].decode(errors="replace") + done.stderr.decode(errors="replace")
        assert status in (None, done.returncode), f"{arguments}: {done.returncode}\n{said}"
        return done

    def start(
        self, *arguments: str, stdin: int = subprocess.DEVNULL, **streams: int
    ) -> subprocess.Popen[bytes]:
        """Start box and leave it running; ended with the test at the latest."""
        child: subprocess.Popen[bytes] = subprocess.Popen(
            [BOX, *arguments],
            env=self.environment,
            cwd=self.folder,
            stdin=stdin,
            **streams,  # type: ignore[call-overload]
        )
        self._children.append(child)
        return child

    def vm(self, name: str) -> records.VmRecord:
        """The record of a standing VM that must be there."""
        record = records.vm_record(self.home, name)
        assert record is not None, f"{name} has no VM"
        return record

    def pid(self, name: str) -> int:
        """The PID of a standing VM's VMM."""
        identity = self.vm(name).identity
        assert identity is not None
        return identity.pid

    def events(self, name: str) -> list[dict[str, str]]:
        """The sandbox's events, oldest first."""
        path = self.home / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [e for e in map(json.loads, lines) if e["sandbox"] == name]

    def cgroups(self) -> list[Path]:
        """The cgroups of this home's VMs, in every hierarchy."""
        tag = traces.home_tag(self.home)
        found = []
        for hierarchy in cgroups.detect().hierarchies:
            found += list(Path(hierarchy.mount).glob(f"box*/{tag}-*"))
        return found

    def leftovers(self) -> list[str]:
        """Everything that a VM of this home still has."""
        # A write that was killed leaves its draft, which a later command sweeps.
        names = [path for path in (self.home / "run").iterdir() if path.suffix != ".tmp"]
        files = [str(path) for path in names]
        state = [str(path) for path in (self.home / "runtime").iterdir()]
        return [*files, *state, *map(str, self.cgroups())]

    def end(self) -> None:
        """End what was started and take away every VM."""
        for child in self._children:
            if child.poll() is None:
                child.kill()
            child.wait()
        # Without them nobody who waits for his turn to fill a pool does so.
        for record in (self.home / "sandboxes").glob("*/record.json"):
            record.unlink()
        for lock in (self.home / "sandboxes").glob("*/warm.lock"):
            # Whoever fills a pool in the background is done with it then.
            with files.locked(lock, timeout_seconds=TIMEOUT_SECONDS):
                pass
        for vm in records.vm_records(self.home):
            traces.discard(self.home, vm)
        paths = self.cgroups()
        cgroups.kill_all(paths)
        cgroups.remove(paths)


def until(true: Callable[[], object], seconds: float = TIMEOUT_SECONDS) -> None:
    """Wait for the world: look again and again until `true`, and fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.02)


@contextmanager
def root_has_ids() -> Iterator[None]:
    """Root has subordinate IDs of its own, as quickstart gives it; given back by the last user.

    Whoever uses them shares a lock, since tests of several processes do so at once.
    """
    if os.geteuid() != 0:
        yield
        return
    with _IDS.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        while not _root_has_ids():
            # Without IDs nobody keeps the lock for long.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _root_has_ids():
                _give()
            fcntl.flock(lock, fcntl.LOCK_SH)
        try:
            yield
        finally:
            _give_back(lock)


def _root_has_ids() -> bool:
    return bool(subids.ranges_of(subids.read_tables(), "root", 0).uids)


def _give() -> None:
    line = subids.usermod_line(subids.read_tables(), "root")
    subprocess.run(line.split(), check=True, timeout=60)
    _GIVEN.write_text(line)


def _give_back(lock: IO[str]) -> None:
    # Let go first: of two who did that only later, neither would be the last one.
    fcntl.flock(lock, fcntl.LOCK_UN)
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _GIVEN.exists():
            taken = _GIVEN.read_text().replace("--add-", "--del-").split()
            subprocess.run(taken, check=True, timeout=60)
            _GIVEN.unlink()


@contextmanager
def live() -> Iterator[Live]:
    """A fresh home, in a short path that other users cannot enter."""
    root = Path(tempfile.mkdtemp(prefix="box-live-", dir="/tmp"))
    try:
        (root / "home").mkdir(mode=0o700)
        (root / "desired").mkdir()
        it = Live(root / "home", root / "desired")
        for name in ("run", "runtime"):
            (it.home / name).mkdir()
        try:
            yield it
        finally:
            it.end()
    finally:
        until(lambda: _removed(root), 30.0)


def _removed(top: Path) -> bool:
    """Whether a folder could be taken away: somebody may still be making a lock in it."""
    with suppress(OSError):
        shutil.rmtree(top)
    return not top.exists()
