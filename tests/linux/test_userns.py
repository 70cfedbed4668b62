from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.confinement.policy import (
    SECCOMP_PROFILES,
    BindMount,
    IdRange,
    Policy,
    Slot,
    policy_for,
)
from reconciler.linux import identity, userns
from reconciler.linux.subids import HostRange, SubordinateRanges
from reconciler.linux.userns import MapsRefused
from tests.linux import container, ordinary_user
from tests.linux.container import Spec
from tests.linux.ordinary_user import OrdinaryUser

ENTER = (
    f"{sys.executable} -I -S {Path(userns.__file__).with_name('enter.py')}"
    " --scratch /mnt --owner 0 0"
)
SLOT = Slot(0, 3_550_000_000, 3_550_000_000)


def test_outer_map_stacks_all_ranges_above_the_user() -> None:
    ranges = SubordinateRanges(
        (HostRange(100_000, 65_536), HostRange(500_000, 10)), (HostRange(200_000, 65_536),)
    )
    maps = userns.outer_map(1000, 1001, ranges)
    assert maps.uids == (
        IdRange(0, 1000, 1),
        IdRange(1, 100_000, 65_536),
        IdRange(65_537, 500_000, 10),
    )
    assert maps.gids == (IdRange(0, 1001, 1), IdRange(1, 200_000, 65_536))
    assert [maps.uid_inside(n) for n in (1000, 100_000, 165_535, 500_009)] == [0, 1, 65_536, 65_546]
    assert maps.gid_inside(200_000) == 1


@pytest.mark.parametrize("uid", [0, 999, 1001, 99_999, 165_536, 500_010])
def test_an_id_that_is_not_ours_has_no_place_inside(uid: int) -> None:
    ranges = (HostRange(100_000, 65_536), HostRange(500_000, 10))
    maps = userns.outer_map(1000, 1000, SubordinateRanges(ranges, ranges))
    with pytest.raises(MapsRefused):
        maps.uid_inside(uid)


def test_a_map_never_has_more_lines_than_the_kernel_takes() -> None:
    many = tuple(HostRange(100_000 + 2 * n, 1) for n in range(400))
    maps = userns.outer_map(1000, 1000, SubordinateRanges(many, many))
    assert len(maps.uids) == 340


def policy(probe: Path, name: str, backend: str = "qemu") -> Policy:
    return policy_for(
        backend=backend,
        isolation="strict",
        ram_mib=128,
        cpus=1,
        own_uid=0,
        own_gid=0,
        slot=SLOT,
        cgroup=f"/box-test-{os.getpid()}-{name}",
        binds=(BindMount(str(probe), "/bin/vmm"),),
    )


@pytest.fixture(scope="module")
def probe() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="box-probe-", dir="/tmp"))
    yield container.build_probe(directory)
    shutil.rmtree(directory)


def ask(
    probe: Path,
    question: str,
    weaken: Callable[[Spec], None] | None = None,
    backend: str = "qemu",
) -> list[str]:
    """What the probe reports from inside a container under the full policy, or a weaker one."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    go_reader, go_writer = os.pipe2(os.O_CLOEXEC)
    with os.fdopen(reader, "rb") as report, os.fdopen(go_writer, "wb", buffering=0) as go:
        with container.running(
            policy(probe, question, backend),
            ["/bin/vmm", question],
            pass_fds=(writer, go_reader),
            weaken=weaken,
        ):
            # Only the container holds this end now, so its exit ends the report.
            os.close(writer)
            go.write(b"g")
            text = report.read()
        os.close(go_reader)
    return text.decode().splitlines()


def without_filter(spec: Spec) -> None:
    del spec["linux"]["seccomp"]


@pytest.mark.root
@pytest.mark.parametrize("backend", SECCOMP_PROFILES)
def test_no_forbidden_call_works_inside(probe: Path, backend: str) -> None:
    results = dict(line.split() for line in ask(probe, "calls", backend=backend))
    assert results.pop("getpid") == "0"
    assert results.pop("clone3") == results.pop("io_uring_setup") == "38"
    # Firecracker takes no sockets, so it has to make its own.
    assert results.pop("socket-unix-stream") == ("0" if backend == "firecracker" else "1")
    assert set(results.values()) == {"1"}
    assert len(results) == 18


@pytest.mark.root
def test_the_same_calls_work_without_the_filter(probe: Path) -> None:
    """No capability and no_new_privs are not enough: this is what the filter is for."""
    results = dict(line.split() for line in ask(probe, "calls", without_filter))
    worked = {name for name, errno in results.items() if errno == "0"}
    sockets = {"socket", "socket-inet", "socket-netlink", "socket-unix-stream"}
    assert worked >= {"unshare-user", "personality", "prctl-subreaper", *sockets}


@pytest.mark.root
@pytest.mark.parametrize("backend", SECCOMP_PROFILES)
@pytest.mark.parametrize("door", ["x32", "i386"])
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="doors of x86-64")
def test_other_doors_into_the_kernel_kill(probe: Path, door: str, backend: str) -> None:
    assert ask(probe, door, without_filter) == ["alive"]
    assert ask(probe, door, backend=backend) == []


@pytest.mark.root
def test_only_the_given_descriptors_arrive(probe: Path) -> None:
    with Path("/etc/hostname").open("rb"):  # one that must not
        assert ask(probe, "fds") == ["0 1 2 3 4 "]


@pytest.mark.root
def test_descriptors_arrive_in_the_order_given(probe: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("first", "second", "third")]
    fds = []
    for file in files:
        file.write_text("")
        fds.append(os.open(file, os.O_RDONLY | os.O_CLOEXEC))
    # Backwards, so that each has to take the place of another one.
    with container.running(policy(probe, "order"), ["/bin/vmm"], pass_fds=fds[::-1]) as who:
        links = [Path(f"/proc/{who.pid}/fd/{fd}").readlink() for fd in (3, 4, 5)]
    for fd in fds:
        os.close(fd)
    assert links == files[::-1]


@pytest.mark.root
def test_descriptors_that_sit_at_each_others_places(tmp_path: Path) -> None:
    """3, 4 and 5 in reverse, a file at 7 that nobody asked for, and the shell as the runtime."""
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    script = (
        "exec 3<a 4<b 5<c 6</dev/null 7</etc/hostname;"
        f"exec {ENTER} --config 6 --fd 5 --fd 4 --fd 3"
        " -- /bin/sh -c 'for fd in /proc/$$/fd/*; do readlink $fd; done; exit 0'"
    )
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("/")]
    assert found == ["/dev/null", *(str(tmp_path / name) for name in ("c", "b", "a"))]


@pytest.mark.root
def test_nothing_is_mounted_on_a_host_whose_mounts_are_shared() -> None:
    """As under systemd: without care the tmpfs would appear on the host too."""
    script = f"{ENTER} --config 0 -- /bin/true && ! grep ' /mnt ' /proc/self/mountinfo"
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "shared", "sh", "-c", script],
        stdin=subprocess.DEVNULL,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0


@pytest.mark.timeout(30)
def test_a_launcher_that_dies_before_its_maps_are_written_keeps_nobody_waiting() -> None:
    maps = userns.OuterMaps((IdRange(0, os.getuid(), 1),), (IdRange(0, os.getgid(), 1),))
    with userns.start_in_namespaces(
        ["/bin/true"],
        maps=maps,
        scratch_dir="/mnt",
        config=b"{}",
        rootfs_owner=("not", "numbers"),  # type: ignore[arg-type]
    ) as child:
        assert child.wait(10) == 125


@pytest.mark.root
def test_the_scratch_directory_is_hidden_only_for_the_launch(probe: Path) -> None:
    before = Path("/proc/self/mountinfo").read_bytes()
    with container.running(policy(probe, "scratch"), ["/bin/vmm"]):
        assert Path("/proc/self/mountinfo").read_bytes() == before
        assert not (Path(container.SCRATCH) / "config.json").exists()


@pytest.mark.root
@pytest.mark.parametrize(
    ("argv", "scratch", "said"),
    [
        (["/nowhere/runtime"], "/mnt", "/nowhere/runtime cannot be executed"),
        (["/bin/true"], "/nowhere", "mount /nowhere"),
    ],
)
def test_a_launcher_that_fails_says_why(
    argv: list[str], scratch: str, said: str, tmp_path: Path
) -> None:
    with (
        (tmp_path / "errors").open("wb") as errors,
        userns.start_in_namespaces(
            argv,
            maps=None,
            scratch_dir=scratch,
            config=b"{}",
            rootfs_owner=(0, 0),
            errors=errors.fileno(),
        ) as child,
    ):
        assert child.wait(30) == 125
    text = (tmp_path / "errors").read_text()
    assert text.startswith("box: launcher: ")
    assert said in text
    assert text.count("\n") == 1


@pytest.fixture(scope="module")
def user() -> Iterator[OrdinaryUser]:
    with ordinary_user.made() as each:
        yield each


SETUP = """
    import json, os, signal
    from pathlib import Path
    from reconciler.confinement.policy import BindMount, policy_for
    from reconciler.linux import delegation, identity, ids, subids, userns
    from tests.linux import container
    uid, gid = os.getuid(), os.getgid()
    ranges = subids.ranges_of(subids.read_tables(), subids.user_name(uid), uid)
    maps = userns.outer_map(uid, gid, ranges)
    home = Path.home()
    program = home / "probe"
    if not program.exists():
        container.build_probe(home)
    def policy(isolation):
        return policy_for(isolation=isolation, ram_mib=128, cpus=1, own_uid=uid, own_gid=gid,
            slot=ids.slots(ranges)[0], cgroup=delegation.parent_of(uid) + "/vm",
            binds=(BindMount(str(program), "/bin/vmm"),))
"""


@pytest.mark.root
@pytest.mark.parametrize("isolation", ["strict", "standard"])
def test_an_ordinary_user_launches_and_signals(user: OrdinaryUser, isolation: str) -> None:
    """The program lies in a home that is 0700, the container's user is not the home's owner."""
    out = user.run(
        SETUP
        + f"""
    with container.running(policy({isolation!r}), ["/bin/vmm"], maps=maps) as who:
        with identity.open_process(who) as process:
            status = process.read("status").decode()
            process.signal(signal.SIGKILL)
            print(json.dumps([process.wait(10), status, who.to_dict()]))
    """
    )
    ended, status, who = json.loads(out)
    assert ended
    assert identity.ProcessIdentity.from_dict(who).exe_ino is not None
    uids = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1:]
    if isolation == "standard":
        assert uids == [str(user.uid)] * 4
    else:
        assert len(set(uids)) == 1
        assert int(uids[0]) >= 100_000


@pytest.mark.root
def test_maps_beyond_the_users_own_ids_are_refused(user: OrdinaryUser) -> None:
    """newuidmap decides, not us: the launcher is gone, and nothing runs."""
    out = user.run(
        SETUP
        + """
    from reconciler.confinement.policy import IdRange
    greedy = userns.OuterMaps((IdRange(0, uid, 1), IdRange(1, 1, 60000)), maps.gids)
    try:
        with userns.start_in_namespaces(["/bin/true"], maps=greedy, scratch_dir="/mnt",
                config=b"{}", rootfs_owner=(0, 0)):
            print("started")
    except userns.MapsRefused as error:
        print(error.details)
    """
    )
    assert "newuidmap" in out
    assert "started" not in out


@pytest.mark.root
def test_the_slots_uid_cannot_signal_the_user(user: OrdinaryUser) -> None:
    out = user.run(
        SETUP
        + """
    with container.running(policy("strict"), ["/bin/vmm"], maps=maps) as who:
        slot = int(open(f"/proc/{who.pid}/status").read().split("Uid:")[1].split()[0])
        print(slot, os.stat(f"/proc/{who.pid}").st_uid)
    """
    )
    slot, owner = (int(word) for word in out.split())
    assert slot == owner
    assert slot != user.uid
    with pytest.raises(PermissionError):
        _as_uid(slot, user.uid)


def _as_uid(uid: int, target_uid: int) -> None:
    """Signal a process of `target_uid` as `uid`, in a child."""
    victim = os.fork()
    if victim == 0:
        os.setresuid(target_uid, target_uid, target_uid)
        signal.pause()
        os._exit(0)
    attacker = os.fork()
    if attacker == 0:
        os.setresuid(uid, uid, uid)
        try:
            os.kill(victim, signal.SIGTERM)
        except PermissionError:
            os._exit(13)
        os._exit(0)
    _, status = os.waitpid(attacker, 0)
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    if os.waitstatus_to_exitcode(status) == 13:
        raise PermissionError
