"""A used home and a real VM, with the eyes of another user, of the slot's UID and of the guest."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.backends.runtime import find_runtime
from reconciler.engine import records
from reconciler.images.kernel import fetch_kernel
from tests.live import DATA, SMALL, Live, live, quiet, root_has_ids, until
from tests.security.strangers import STRANGER, run_as

pytestmark = [pytest.mark.vm, pytest.mark.root]

SECRET = "a-value-that-nobody-else-may-see-4711"
DECLARED = SMALL + DATA + f"env:\n  API_KEY: {SECRET}\n"
PROBE = """
import os, sys
top = sys.argv[1]
for way in (top, top + "/run", top + "/sandboxes", top + "/snapshots"):
    for name, ask in (("list", os.listdir), ("open", lambda p: os.open(p, os.O_RDONLY))):
        try:
            ask(way)
            print(name, way)
        except OSError:
            pass
for path in sys.stdin.read().splitlines():
    for mode, word in ((os.R_OK, "read"), (os.W_OK, "write")):
        if os.access(path, mode, effective_ids=True):
            print(word, path)
"""


@pytest.fixture(scope="module")
def used() -> Iterator[Live]:
    with root_has_ids(), live() as it:
        # Only the home itself keeps others out.
        it.home.parent.chmod(0o755)
        fetch_kernel(it.home, quiet)
        it.declare("web", DECLARED)
        it.box("up", "web")
        it.box("exec", "web", "--", "sh", "-c", "echo kept >/data/f; sync")
        yield it


@contextlib.contextmanager
def running(live: Live, *arguments: str) -> Iterator[None]:
    """A command that has said a first line and goes on; ended with the block."""
    with live.start(*arguments, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"\n"
        try:
            yield
        finally:
            child.terminate()


def slot_of(live: Live) -> int:
    """The UID that the VMM has on the host."""
    return Path(f"/proc/{live.pid('web')}").stat().st_uid


def reached_by(uid: int, home: Path) -> str:
    """What of a home this UID can list, read or write."""
    paths = "\n".join(map(str, home.rglob("*")))
    drop = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
    done = subprocess.run(
        [*drop, "/usr/bin/python3", "-c", PROBE, str(home)],
        input=paths,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def test_another_user_and_the_slots_own_uid_reach_nothing_of_a_home(used: Live) -> None:
    slot = slot_of(used)
    assert slot not in (0, os.getuid())
    for uid in (STRANGER, slot):
        assert reached_by(uid, used.home) == ""
    # What the 0700 of the home is for: else its kernels and images could be listed and read.
    used.home.chmod(0o755)
    try:
        assert f"list {used.home}" in reached_by(STRANGER, used.home)
        shown = reached_by(STRANGER, used.home).splitlines()
    finally:
        used.home.chmod(0o700)
    # And even so no token, no memory, no disk and no socket.
    secret = ("run/", "sandboxes/", "snapshots/", ".json", "events", "proofs/")
    told = [line.split(" ", 1)[1].removeprefix(f"{used.home}/") for line in shown]
    assert [each for each in told if each.startswith(secret) or each.endswith(".json")] == []


def test_nothing_of_it_lies_elsewhere_on_the_host(used: Live) -> None:
    places = [*Path("/tmp").iterdir(), *Path("/run").iterdir(), *Path("/dev/shm").iterdir()]
    token = used.vm("web").token
    for path in places:
        with contextlib.suppress(OSError):
            facts = path.lstat()
            assert facts.st_uid != slot_of(used), path
            if stat.S_ISREG(facts.st_mode) and facts.st_size < 1 << 20:
                assert token.encode() not in path.read_bytes(), path


def test_no_process_shows_a_token_or_a_declared_value(used: Live) -> None:
    """Of all processes on the host, while commands run by every way there is."""
    token = used.vm("web").token
    asleep = ("--", "sh", "-c", "echo; exec sleep 60")
    with running(used, "exec", "web", *asleep), running(used, "run", "--no-data", "web", *asleep):
        tokens = {token, *(vm.token for vm in records.vm_records(used.home))}
        assert len(tokens) == 2
        wanted = [SECRET.encode(), *map(str.encode, tokens), *map(bytes.fromhex, tokens)]
        assert shown(wanted) == []
        # The look itself: what a process does show is found.
        assert len(shown([b"echo; exec sleep 60"])) >= 2


def shown(wanted: list[bytes]) -> list[str]:
    """Which processes of the host show one of these in their arguments or environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                data = (process / name).read_bytes()
                found += [f"{process}/{name}" for each in wanted if each in data]
    return found


def test_its_control_sockets_are_its_owners_and_it_has_no_other_door(used: Live) -> None:
    argv = Path(f"/proc/{used.pid('web')}/cmdline").read_bytes().split(b"\0")
    assert not {b"-gdb", b"-s", b"-monitor", b"-vnc", b"-spice", b"-qmp", b"-net"} & set(argv)
    assert not [word for word in argv if b"path=" in word or word.startswith(b"tcp:")]
    sockets = [path for path in used.home.rglob("*") if path.is_socket()]
    assert len(sockets) == 17
    call = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    for uid in (STRANGER, slot_of(used)):
        for path in sockets:
            done = run_as(uid, "/usr/bin/python3", "-c", call, str(path), status=None)
            assert "PermissionError" in done.stderr
    for path in sockets:
        assert path.stat().st_mode & 0o777 == 0o600
    # The VMM's own kernel view names none by a path that it could call.
    listed = Path(f"/proc/{used.pid('web')}/net/unix").read_text()
    assert str(used.home) not in listed


def test_all_that_it_can_write_on_the_host_is_the_disk_of_its_sandbox(used: Live) -> None:
    pid = used.pid("web")
    disk = (used.home / "sandboxes/web/data.img").stat()
    writable = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        facts = link.stat()
        note = Path(f"/proc/{pid}/fdinfo/{link.name}").read_text()
        reads = int(note.split("flags:")[1].split()[0], 8) & os.O_ACCMODE == os.O_RDONLY
        own = str(link.readlink()).startswith("/memfd:")
        if stat.S_ISREG(facts.st_mode) and not reads and not own:
            writable.add((facts.st_dev, facts.st_ino))
    assert writable == {(disk.st_dev, disk.st_ino)}
    for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
        target, options = line.split()[4:6]
        device = Path(f"/proc/{pid}/root{target}").is_char_device()
        assert device or "ro" in options.split(","), line


def test_its_dev_is_a_tmpfs_and_nothing_in_it_is_what_it_should_not_be(used: Live) -> None:
    pid = used.pid("web")
    lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    [dev] = [line for line in lines if line.split()[4] == "/dev"]
    assert " - tmpfs " in dev
    null = Path(f"/proc/{pid}/root/dev/null").stat()
    assert (stat.S_ISCHR(null.st_mode), null.st_rdev) == (True, os.makedev(1, 3))
    assert not Path(f"/proc/{pid}/root/dev/console").exists()
    for link in Path(f"/proc/{pid}/root/dev").iterdir():
        assert not link.is_block_device(), link


def parts(live: Live) -> dict[str, str]:
    """The hash of everything a VM is made of, and of what starts it."""
    policy = records.policy_of(live.home, live.vm("web"))
    paths = [Path(bind.source) for bind in policy.binds] + [find_runtime().path]
    paths += live.home.glob("snapshots/*/state")
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def test_a_guest_that_deletes_and_overwrites_everything_harms_only_itself(used: Live) -> None:
    before = parts(used)
    assert len(before) > 10
    used.box(
        *("exec", "web", "--", "sh", "-c"),
        "for d in /dev/vda /dev/vdb; do dd if=/dev/zero of=$d bs=1M count=1; done;"
        "rm -rf --no-preserve-root /* 2>/dev/null; rm -rf /bin /etc /sbin /usr /data/*; true",
        status=None,
    )
    assert used.box("exec", "web", "--", "true", status=None).returncode != 0
    assert parts(used) == before
    # The next VM is whole.
    done = used.box("run", "--no-data", "web", "--", "sh", "-c", "ls / | wc -l; test -x /bin/sh")
    assert int(done.stdout) > 10


@pytest.mark.timeout(400)
def test_a_guest_that_spins_on_every_cpu_keeps_no_other_from_answering(used: Live) -> None:
    used.declare("busy", SMALL.replace("cpus: 1", "cpus: 2"))
    used.declare("calm", SMALL)
    used.box("up", "busy")
    used.box("up", "calm")
    clock = os.sysconf("SC_CLK_TCK")

    def used_seconds(name: str) -> float:
        fields = Path(f"/proc/{used.pid(name)}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / clock

    spin = "for i in 1 2 3 4; do yes >/dev/null & done; echo; wait"
    with running(used, "exec", "busy", "--", "sh", "-c", spin):
        began = used_seconds("busy")
        until(lambda: used_seconds("busy") > began + 1)
        for _ in range(5):
            assert used.box("exec", "calm", "--", "echo", "here").stdout == b"here\n"
        threads = len(list(Path(f"/proc/{used.pid('busy')}/task").iterdir()))
        assert threads < 32
