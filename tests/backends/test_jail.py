from __future__ import annotations

import gc
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.backends import jail, runtime
from reconciler.backends.jail import Jail, JailFailed, StartedJail
from reconciler.confinement import judging
from reconciler.confinement.policy import BindMount, Slot, policy_for
from reconciler.linux import cgroups, identity, reading
from tests.linux import container

REPO = Path(jail.__file__).parents[2]
SLOT = Slot(0, 3_500_000_000, 3_500_000_000)
DEADLINE_SECONDS = 60.0


@pytest.fixture(scope="module")
def probe() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="box-probe-", dir="/tmp") as directory:
        yield container.build_probe(Path(directory))


@pytest.fixture
def one(box_home: Path, probe: Path) -> Iterator[Jail]:
    """A jail that is not started; whatever a test leaves of it is taken away."""
    group = f"box-test-{secrets.token_hex(4)}"
    chosen = runtime.find_runtime()
    policy = policy_for(
        isolation="strict",
        ram_mib=128,
        cpus=1,
        own_uid=0,
        own_gid=0,
        slot=SLOT,
        cgroup=runtime.cgroup_path(chosen, group),
        binds=(BindMount(str(probe), "/bin/vmm"),),
    )
    it = Jail(box_home, chosen, "web.1a2b", group, policy)
    yield it
    jail.remove(box_home, it.name, policy.cgroup)


def directories(one: Jail) -> list[Path]:
    return [path for path in cgroups.detect().directories(one.policy.cgroup) if path.exists()]


def processes(one: Jail) -> set[int]:
    """What is in the jail's cgroup, and what the launcher and the runtime are."""
    found = set().union(*(cgroups.list_procs(path) for path in directories(one)))
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if str(one.home).encode() in (entry / "cmdline").read_bytes():
                    found.add(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def traces(one: Jail) -> list[Path]:
    return [*directories(one), *(one.home / "runtime").glob("[!.]*")]


@contextmanager
def speaking(one: Jail, *pass_fds: int) -> Iterator[StartedJail]:
    """Start the probe, and wait until it has said which descriptors it has."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    with ExitStack() as stack:
        stack.callback(os.close, reader)
        with jail.start(one, ["/bin/vmm", "fds"], pass_fds=[writer, *pass_fds]) as started:
            os.close(writer)
            started.wait()
            said = ""
            while not said.endswith("\n") and (data := os.read(reader, 4096)):
                said += data.decode()
            assert said.split() == [str(n) for n in range(4 + len(pass_fds))]
            yield started


@pytest.mark.root
def test_a_jail_lives_on_after_its_start_and_keeps_every_promise(one: Jail) -> None:
    with speaking(one) as started:
        who = started.identity()
    facts = judging.judge(one.policy, reading.read_process(who, one.policy))
    # The probe's own pipe is no file that the policy names.
    assert {fact.promise for fact in facts if fact.failed} <= {"files.open"}
    with identity.open_process(who) as process:
        assert process is not None
        assert process.alive
        jail.remove(one.home, one.name, one.policy.cgroup)
        assert process.wait(DEADLINE_SECONDS)
    assert traces(one) == []
    jail.remove(one.home, one.name, one.policy.cgroup)


def process_objects() -> int:
    # By its type, and not isinstance: what else there is may pretend to be one.
    return sum(type(each) is subprocess.Popen for each in gc.get_objects())


@pytest.mark.root
def test_a_start_leaves_no_process_object_to_the_garbage_collector(one: Jail) -> None:
    """Its `__del__`, run by the collector, would swallow a Ctrl-C that comes meanwhile."""
    gc.collect()
    gc.disable()
    try:
        before = process_objects()
        with speaking(one):
            assert process_objects() == before + 1
        assert process_objects() == before
    finally:
        gc.enable()


@pytest.mark.root
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("waits", [True, False])
def test_a_block_that_raises_leaves_nothing_even_while_the_runtime_works(
    one: Jail, error: type[BaseException], *, waits: bool
) -> None:
    def block() -> None:
        with jail.start(one, ["/bin/vmm"], pass_fds=[]) as started:
            if waits:
                started.wait()
            raise error

    with pytest.raises(error):
        block()
    assert traces(one) == []
    assert processes(one) == set()


@pytest.mark.root
def test_a_program_that_is_not_there_is_told(one: Jail) -> None:
    with (
        pytest.raises(JailFailed, match="could not start") as caught,
        jail.start(one, ["/bin/nothing"], pass_fds=[]) as started,
    ):
        started.wait()
    assert "nothing" in str(caught.value)
    assert traces(one) == []


@pytest.mark.root
def test_a_bundle_that_the_launcher_cannot_make_is_told(one: Jail) -> None:
    gone = replace(one, runtime=replace(one.runtime, path=Path("/usr/bin/no-such-runtime")))
    with (
        pytest.raises(JailFailed) as caught,
        jail.start(gone, ["/bin/vmm"], pass_fds=[]) as started,
    ):
        started.wait()
    assert "no-such-runtime cannot be executed" in str(caught.value)
    assert traces(one) == []


@pytest.mark.root
def test_descriptors_arrive_in_order_and_stay_ours(one: Jail, tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as a, (tmp_path / "b").open("wb") as b:
        with speaking(one, a.fileno(), b.fileno()) as started:
            pid = started.identity().pid
            links = [Path(f"/proc/{pid}/fd/{n}").readlink() for n in (4, 5)]
        assert links == [tmp_path / "a", tmp_path / "b"]
        os.fstat(a.fileno())


@pytest.mark.root
def test_what_the_vmm_says_on_its_error_stream_is_safe_text(one: Jail) -> None:
    with speaking(one) as started:
        pid = started.identity().pid
        with Path(f"/proc/{pid}/fd/2").open("wb") as stream:
            stream.write(b"no \x1b[31m\xff disk\n" + b"x" * 20_000)
            stream.flush()
        said = started.complaint()
    assert said.startswith("no ?[31m\\xff disk\nxxx")
    assert len(said) < 9000


@pytest.mark.root
def test_leftovers_of_every_kind_are_taken_away(one: Jail) -> None:
    with speaking(one):
        pass
    # Half of it is gone already, as after a reboot or another's cleaning up.
    cgroups.kill_all(directories(one))
    for path in directories(one)[1::2]:
        path.rmdir()
    (one.home / "runtime" / f"{one.name}.pid").unlink()
    (one.home / "runtime" / one.name / "state.json").write_text("{")
    # What a runc that is killed while it writes the PID leaves: it lets no other one start.
    (one.home / "runtime" / f".{one.name}.pid").write_text("")
    assert traces(one) != []
    jail.remove(one.home, one.name, one.policy.cgroup)
    assert traces(one) == []
    with speaking(one):
        pass


@pytest.mark.root
def test_another_jail_with_a_name_that_begins_alike_is_left_alone(one: Jail) -> None:
    group = f"{one.group}3"
    other = replace(
        one,
        name="web.1a2b3",
        policy=replace(one.policy, cgroup=runtime.cgroup_path(one.runtime, group)),
        group=group,
    )
    try:
        with speaking(other) as started:
            who = started.identity()
        jail.remove(one.home, one.name, one.policy.cgroup)
        with identity.open_process(who) as process:
            assert process is not None
            assert process.alive
        assert len(directories(other)) == len(cgroups.detect().hierarchies)
        assert (one.home / "runtime" / other.name).exists()
    finally:
        jail.remove(one.home, other.name, other.policy.cgroup)


KILLED = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from reconciler.backends import jail
from reconciler.backends.jail import Jail
from reconciler.backends.runtime import Runtime
from reconciler.confinement.policy import Policy
given = json.loads(sys.stdin.read())
chosen = Runtime(Path(given["runtime"]), systemd=given["systemd"])
one = Jail(Path(given["home"]), chosen, given["name"], given["group"],
           Policy.from_json(given["policy"]))
with jail.start(one, ["/bin/vmm"], pass_fds=[]) as started:
    print("started", flush=True)
    if given["waits"]:
        started.wait()
    else:
        import time
        time.sleep(given["after"])
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.root
@pytest.mark.parametrize("after", [0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, None])
def test_when_box_is_killed_in_the_middle_nothing_starts_afterwards(
    one: Jail, after: float | None
) -> None:
    given = {
        "home": str(one.home),
        "runtime": str(one.runtime.path),
        "systemd": one.runtime.systemd,
        "name": one.name,
        "group": one.group,
        "policy": one.policy.to_json(),
        "waits": after is None,
        "after": after,
    }
    done = subprocess.run(
        [sys.executable, "-I", "-c", KILLED, REPO],
        input=json.dumps(given).encode(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    # What the next command does, at once.
    jail.remove(one.home, one.name, one.policy.cgroup)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (left := processes(one)) and not _all_in_jail(one, left):
        assert time.monotonic() < deadline, left
        time.sleep(0.005)
    assert left == set(), "a VM that nobody knows of"


def _all_in_jail(one: Jail, pids: set[int]) -> bool:
    jailed = set().union(*(cgroups.list_procs(path) for path in directories(one)))
    return pids <= jailed


@pytest.mark.root
def test_a_link_to_where_the_bundle_would_lie_hides_nothing(one: Jail, probe: Path) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="box-test-", dir="/mnt") as real,
        tempfile.TemporaryDirectory(prefix="box-test-", dir="/tmp") as folder,
    ):
        (Path(real) / "kernel").write_bytes(b"the kernel")
        (Path(folder) / "link").symlink_to(real)
        source = f"{folder}/link/kernel"
        policy = replace(one.policy, binds=(*one.policy.binds, BindMount(source, "/kernel")))
        with speaking(replace(one, policy=policy)) as started:
            pid = started.identity().pid
            assert Path(f"/proc/{pid}/root/kernel").read_bytes() == b"the kernel"
        jail.remove(one.home, one.name, one.policy.cgroup)
