from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.confinement import judging, noting
from reconciler.confinement.facts import Fact, Verdict
from reconciler.confinement.policy import BindMount, IdRange, Policy, Slot, policy_for
from reconciler.linux import cgroups, identity, neighbours, reading
from reconciler.linux.cgroups import Layout
from reconciler.linux.identity import ProcessIdentity
from tests.linux import container, ordinary_user
from tests.linux.container import Spec

SLOT = Slot(0, 3_600_000_000, 3_600_000_000)


@pytest.fixture(scope="module")
def probe() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="box-probe-", dir="/tmp"))
    yield container.build_probe(directory)
    shutil.rmtree(directory)


def policy(probe: Path, open_files: tuple[str, ...] = ()) -> Policy:
    return policy_for(
        isolation="strict",
        ram_mib=128,
        cpus=1,
        own_uid=0,
        own_gid=0,
        slot=SLOT,
        cgroup=f"/box-test-{secrets.token_hex(4)}",
        binds=(BindMount(str(probe), "/bin/vmm"),),
        open_files=open_files,
    )


def facts(who: ProcessIdentity, wanted: Policy) -> dict[str, Fact]:
    return {fact.promise: fact for fact in judging.judge(wanted, reading.read_process(who, wanted))}


def failed(who: ProcessIdentity, wanted: Policy) -> set[str]:
    return {promise for promise, fact in facts(who, wanted).items() if fact.failed}


@pytest.mark.root
def test_a_container_under_the_policy_keeps_every_promise(probe: Path) -> None:
    wanted = policy(probe)
    with container.running(wanted, ["/bin/vmm"]) as who:
        found = facts(who, wanted)
    others = {name: fact for name, fact in found.items() if fact.verdict is not Verdict.SAME}
    assert set(others) <= {"label"}, others
    assert not any(fact.failed for fact in others.values()), others
    assert re.search("sha256 [0-9a-f]{64}$", found["seccomp.filter"].have)
    assert found["identity.uid"].have == str(SLOT.uid_base)
    assert found["limit.swap"].have == str((128 + 256) << 20)


def no_new_privs(spec: Spec) -> None:
    spec["process"]["noNewPrivileges"] = False
    # Loaded earlier then, before the runtime's own last steps, which our filter refuses.
    spec["linux"]["seccomp"]["defaultAction"] = "SCMP_ACT_ALLOW"


def a_capability(spec: Spec) -> None:
    for kind in spec["process"]["capabilities"]:
        spec["process"]["capabilities"][kind] = ["CAP_NET_RAW"]


def bounding_only(spec: Spec) -> None:
    spec["process"]["capabilities"]["bounding"] = ["CAP_SYS_ADMIN"]


def no_seccomp(spec: Spec) -> None:
    del spec["linux"]["seccomp"]


def allow_all(spec: Spec) -> None:
    """A filter is on, and filters nothing."""
    spec["linux"]["seccomp"]["defaultAction"] = "SCMP_ACT_ALLOW"


def allow(call: str) -> Callable[[Spec], None]:
    def weaken(spec: Spec) -> None:
        rule = {"names": [call], "action": "SCMP_ACT_ALLOW"}
        spec["linux"]["seccomp"]["syscalls"].append(rule)

    return weaken


def another_architecture(spec: Spec) -> None:
    spec["linux"]["seccomp"]["architectures"].append("SCMP_ARCH_X32")
    spec["linux"]["seccomp"]["syscalls"][0]["names"] += ["getpid"]


def elsewhere(spec: Spec) -> None:
    spec["process"]["cwd"] = "/proc"


def host_namespace(kind: str) -> Callable[[Spec], None]:
    def weaken(spec: Spec) -> None:
        spaces = spec["linux"]["namespaces"]
        spec["linux"]["namespaces"] = [each for each in spaces if each["type"] != kind]
        if kind == "uts":
            del spec["hostname"]

    return weaken


def bind(source: str, target: str, *options: str) -> Callable[[Spec], None]:
    def weaken(spec: Spec) -> None:
        mount = {"destination": target, "type": "bind", "source": source}
        spec["mounts"].append({**mount, "options": [*options, "nosuid", "nodev"]})

    return weaken


def bind_option(change: Callable[[list[str]], list[str]]) -> Callable[[Spec], None]:
    def weaken(spec: Spec) -> None:
        mount = next(each for each in spec["mounts"] if each["destination"] == "/bin/vmm")
        mount["options"] = change(mount["options"])

    return weaken


def other_program(spec: Spec) -> None:
    """The right name, another file."""
    mount = next(each for each in spec["mounts"] if each["destination"] == "/bin/vmm")
    copy = mount["source"] + "-copy"
    shutil.copy(mount["source"], copy)
    mount["source"] = copy


def mounted_twice(spec: Spec) -> None:
    """Below the visible mount may lie anything."""
    mount = next(each for each in spec["mounts"] if each["destination"] == "/bin/vmm")
    spec["mounts"].append(mount)


def writable_root(spec: Spec) -> None:
    spec["root"]["readonly"] = False


def writable_dev(spec: Spec) -> None:
    mount = next(each for each in spec["mounts"] if each["destination"] == "/dev")
    mount["options"].remove("ro")


def unmasked(spec: Spec) -> None:
    spec["linux"]["maskedPaths"].remove("/proc/keys")


def writable_sysctls(spec: Spec) -> None:
    spec["linux"]["readonlyPaths"].remove("/proc/sys")


def slave_mounts(spec: Spec) -> None:
    spec["linux"]["rootfsPropagation"] = "slave"
    mount = next(each for each in spec["mounts"] if each["destination"] == "/bin/vmm")
    mount["options"].append("shared")


def no_swap_limit(spec: Spec) -> None:
    del spec["linux"]["resources"]["memory"]["swap"]


def more_memory(spec: Spec) -> None:
    spec["linux"]["resources"]["memory"] = {"limit": 1 << 30, "swap": 1 << 30}


def no_memory_limit(spec: Spec) -> None:
    del spec["linux"]["resources"]["memory"]


def no_pids_limit(spec: Spec) -> None:
    del spec["linux"]["resources"]["pids"]


def core_files(spec: Spec) -> None:
    for limit in spec["process"]["rlimits"]:
        if limit["type"] == "RLIMIT_CORE":
            limit["hard"] = 1 << 30


def no_rlimits(spec: Spec) -> None:
    limits = spec["process"]["rlimits"]
    spec["process"]["rlimits"] = [each for each in limits if each["type"] == "RLIMIT_CORE"]


def groups(spec: Spec) -> None:
    spec["process"]["user"]["additionalGids"] = [27]


def other_ids(spec: Spec) -> None:
    for kind in ("uidMappings", "gidMappings"):
        spec["linux"][kind][0]["hostID"] += 65_536


def fewer_ids(spec: Spec) -> None:
    spec["linux"]["uidMappings"][0]["size"] = 1000


def unimportant(spec: Spec) -> None:
    spec["process"]["oomScoreAdj"] = 0


WEAKENED: list[tuple[Callable[[Spec], None], set[str]]] = [
    (no_new_privs, {"no_new_privs", "seccomp.filter"}),
    (a_capability, {"capabilities"}),
    (bounding_only, {"capabilities"}),
    (no_seccomp, {"seccomp"}),
    (allow_all, {"seccomp.filter"}),
    (allow("ptrace"), {"seccomp.filter"}),
    (allow("keyctl"), {"seccomp.filter"}),
    (another_architecture, {"seccomp.filter"}),
    (elsewhere, {"root"}),
    (host_namespace("ipc"), {"namespace.ipc"}),
    (host_namespace("uts"), {"namespace.uts"}),
    (host_namespace("cgroup"), {"namespace.cgroup"}),
    (bind("/etc", "/etc", "rbind", "ro"), {"mounts.declared"}),
    (mounted_twice, {"mounts.declared"}),
    (bind_option(lambda options: [each for each in options if each != "ro"]), {"mounts.declared"}),
    (bind_option(lambda options: [each for each in options if each != "nosuid"]),
     {"mounts.declared"}),
    (other_program, {"mounts.declared"}),
    (writable_root, {"mounts.declared"}),
    (writable_dev, {"mounts.declared"}),
    (unmasked, {"mounts.masked"}),
    (writable_sysctls, {"mounts.declared"}),
    (slave_mounts, {"mounts.private"}),
    (no_swap_limit, {"limit.swap"}),
    (more_memory, {"limit.memory", "limit.swap"}),
    (no_memory_limit, {"limit.memory", "limit.swap"}),
    (no_pids_limit, {"limit.pids"}),
    (core_files, {"limit.core"}),
    (no_rlimits, {"limit.rlimits"}),
    (groups, {"identity.groups"}),
    (other_ids, {"identity.uid", "identity.gid", "identity.uid_map", "identity.gid_map"}),
    (fewer_ids, {"identity.uid_map"}),
    (unimportant, {"oom_score"}),
]  # fmt: skip


@pytest.mark.root
@pytest.mark.parametrize(("weaken", "broken"), WEAKENED)
def test_a_weaker_launch_fails_exactly_that_promise(
    probe: Path, weaken: Callable[[Spec], None], broken: set[str]
) -> None:
    wanted = policy(probe)
    argv = ["/bin/vmm"]
    with container.running(wanted, argv, weaken=weaken) as who:
        assert failed(who, wanted) == broken


@pytest.mark.root
def test_the_hosts_network(probe: Path) -> None:
    wanted = policy(probe)
    others = {path.name for path in Path("/sys/class/net").iterdir()} - {"lo"}
    with container.running(wanted, ["/bin/vmm"], weaken=host_namespace("network")) as who:
        found = facts(who, wanted)
    broken = {promise for promise, fact in found.items() if fact.failed}
    assert broken == {"namespace.net"} | ({"network.interfaces"} if others else set())
    assert all(name in found["network.interfaces"].have for name in others)


@pytest.mark.root
def test_a_file_of_the_host_left_open(probe: Path, tmp_path: Path) -> None:
    given, leaked = tmp_path / "given", tmp_path / "leaked"
    given.touch()
    leaked.touch()
    wanted = policy(probe, open_files=(str(given),))
    with given.open() as first, leaked.open() as second:
        with container.running(wanted, ["/bin/vmm"], pass_fds=[first.fileno()]) as who:
            assert failed(who, wanted) == set()
        wanted = dataclasses.replace(wanted, cgroup=wanted.cgroup + "-2")
        fds = [first.fileno(), second.fileno()]
        with container.running(wanted, ["/bin/vmm"], pass_fds=fds) as who:
            found = facts(who, wanted)
    assert {promise for promise, fact in found.items() if fact.failed} == {"files.open"}
    assert f"fd 4 is a file of the host (inode {leaked.stat().st_ino})" in found["files.open"].have


@pytest.mark.root
@pytest.mark.parametrize("kind", ["directory", "device"])
def test_other_handles_of_the_host_left_open(probe: Path, kind: str) -> None:
    path = {"directory": "/", "device": "/dev/zero"}[kind]
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        wanted = policy(probe)
        with container.running(wanted, ["/bin/vmm"], pass_fds=[fd]) as who:
            assert failed(who, wanted) == {"files.open"}
    finally:
        os.close(fd)


@pytest.mark.root
def test_a_handle_of_a_kind_that_no_vmm_needs(probe: Path) -> None:
    """inotify(7) on a directory of the host, which tells who comes and goes there."""
    libc = ctypes.CDLL(None)
    fd = libc.inotify_init()
    try:
        libc.inotify_add_watch(fd, b"/tmp", 0x100)
        wanted = policy(probe)
        with container.running(wanted, ["/bin/vmm"], pass_fds=[fd]) as who:
            assert failed(who, wanted) == {"files.kinds"}
    finally:
        os.close(fd)


@pytest.mark.root
def test_a_program_that_was_not_declared(probe: Path) -> None:
    """The same bytes out of memory: what the runtime executes is no mount of the jail's."""
    fd = os.memfd_create("vmm")
    try:
        os.write(fd, probe.read_bytes())
        wanted = policy(probe)
        with container.running(wanted, ["/proc/self/fd/3"], pass_fds=[fd]) as who:
            assert failed(who, wanted) == {"program"}
    finally:
        os.close(fd)


@pytest.mark.root
def test_a_program_that_was_replaced_on_the_host_is_no_false_alarm(
    probe: Path, tmp_path: Path
) -> None:
    """As a package's upgrade does it: a new file takes the name of the old one."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        mine = Path(shutil.copy(probe, Path(directory) / "vmm"))
        wanted = policy(mine)
        with container.running(wanted, ["/bin/vmm"]) as who:
            newer = Path(shutil.copy(probe, Path(directory) / "newer"))
            newer.rename(mine)
            assert failed(who, wanted) == set()


@pytest.mark.root
@pytest.mark.parametrize("old_stays", [True, False])
def test_a_link_that_leads_to_a_newer_library_is_no_false_alarm(
    probe: Path, *, old_stays: bool
) -> None:
    """As a library's upgrade does it: libx.so.1 leads to libx.so.1.2, then to libx.so.1.3."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o755)
        old = Path(shutil.copy(probe, directory / "vmm.1.2"))
        link = directory / "vmm.1"
        link.symlink_to(old.name)
        wanted = policy(link)
        with container.running(wanted, ["/bin/vmm"]) as who:
            noted = noting.note(reading.read_process(who, wanted))
            newer = Path(shutil.copy(probe, directory / "vmm.1.3"))
            link.unlink()
            link.symlink_to(newer.name)
            if not old_stays:
                old.unlink()
            again = reading.read_process(who, wanted, noted=noted)
            failed_now = {f.promise for f in judging.judge(wanted, again) if f.failed}
            assert failed_now == set()
            link.unlink()
            again = reading.read_process(who, wanted, noted=noted)
            assert not [f for f in judging.judge(wanted, again) if f.failed]


@pytest.mark.root
def test_two_sandboxes_with_the_same_ids(probe: Path) -> None:
    first, second = policy(probe), policy(probe)
    with (
        container.running(first, ["/bin/vmm"]) as one,
        container.running(second, ["/bin/vmm"]) as two,
    ):
        around = neighbours.read_neighbours({"two": two})
        facts = judging.judge(first, reading.read_process(one, first, neighbours=around))
        assert {fact.promise for fact in facts if fact.failed} == {"apart.ids"}


@pytest.mark.root
def test_two_sandboxes_in_one_namespace(probe: Path) -> None:
    first, second = policy(probe), policy(probe)
    moved = tuple(IdRange(0, SLOT.uid_base + 65_536, 65_536) for _ in range(1))
    second = dataclasses.replace(second, uid_map=moved, gid_map=moved)
    with container.running(first, ["/bin/vmm"]) as one:

        def join(spec: Spec) -> None:
            for space in spec["linux"]["namespaces"]:
                if space["type"] == "ipc":
                    space["path"] = f"/proc/{one.pid}/ns/ipc"

        with container.running(second, ["/bin/vmm"], weaken=join) as two:
            around = neighbours.read_neighbours({"one": one})
            facts = judging.judge(second, reading.read_process(two, second, neighbours=around))
        found = {fact.promise: fact for fact in facts if fact.failed}
    assert set(found) == {"apart.namespaces"}
    assert found["apart.namespaces"].have == "its ipc namespace is also that of one"


@pytest.mark.root
def test_the_filter_of_the_start_is_what_later_readings_want(probe: Path) -> None:
    wanted = policy(probe)
    with container.running(wanted, ["/bin/vmm"]) as who:
        noted = noting.note(reading.read_process(who, wanted))
        read = reading.read_process(who, wanted, noted=noted)
        assert {thread.programs for each in read.processes for thread in each.threads} == {None}
        assert not [fact for fact in judging.judge(wanted, read) if fact.failed]
    wanted = dataclasses.replace(wanted, cgroup=wanted.cgroup + "-2")
    with container.running(wanted, ["/bin/vmm"], weaken=allow("vhangup")) as who:
        read = dataclasses.replace(reading.read_process(who, wanted), noted=noted)
    facts = {fact.promise: fact for fact in judging.judge(wanted, read)}
    assert facts["seccomp.filter"].have.endswith("not the filter of its start")
    assert {name for name, fact in facts.items() if fact.failed} == {"seccomp.filter"}


@pytest.mark.root
def test_pipes_sockets_and_memory_are_no_files_of_the_host(probe: Path) -> None:
    fds = [*os.pipe2(os.O_CLOEXEC), os.eventfd(0), os.memfd_create("guest-ram")]
    try:
        wanted = policy(probe)
        with container.running(wanted, ["/bin/vmm"], pass_fds=fds) as who:
            assert failed(who, wanted) == set()
    finally:
        for fd in fds:
            os.close(fd)


@contextmanager
def intruder(cgroup: str, controller: str) -> Iterator[int]:
    """An unconfined process of ours in the sandbox's cgroup; its PID."""
    hierarchy = cgroups.detect().of_controller(controller)
    assert hierarchy is not None
    child = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL)
    try:
        (hierarchy.directory(cgroup) / "cgroup.procs").write_text(str(child.pid))
        yield child.pid
    finally:
        child.kill()
        child.wait(10)


@pytest.mark.root
@pytest.mark.parametrize("controller", ["pids", "memory"])
def test_a_foreign_process_in_the_cgroup_is_found_and_judged_too(
    probe: Path, controller: str
) -> None:
    wanted = policy(probe)
    with (
        container.running(wanted, ["/bin/vmm"]) as who,
        intruder(wanted.cgroup, controller) as pid,
    ):
        found = facts(who, wanted)
    assert f"also PID {pid}" in found["cgroup.members"].have
    assert f"PID {pid}" in found["seccomp"].have
    assert f"PID {pid}" in found["identity.uid"].have


@pytest.mark.root
def test_a_vmm_outside_of_its_cgroup(probe: Path) -> None:
    """A process that was moved away has no limits, whatever its old cgroup says."""
    wanted = policy(probe)
    pids = cgroups.detect().of_controller("pids")
    assert pids is not None
    with container.running(wanted, ["/bin/vmm"]) as who:
        (Path(pids.mount) / "cgroup.procs").write_text(str(who.pid))
        try:
            broken = failed(who, wanted)
        finally:
            (pids.directory(wanted.cgroup) / "cgroup.procs").write_text(str(who.pid))
    if pids.version == 1:
        # Its memory cgroup is another hierarchy, so it is still a member there.
        assert broken == {"cgroup.path", "limit.pids"}
    else:
        assert broken >= {"cgroup.path", "cgroup.members", "limit.pids", "limit.memory"}


@pytest.mark.root
def test_a_limit_raised_afterwards(probe: Path) -> None:
    wanted = policy(probe)
    pids = cgroups.detect().of_controller("pids")
    assert pids is not None
    with container.running(wanted, ["/bin/vmm"]) as who:
        assert failed(who, wanted) == set()
        (pids.directory(wanted.cgroup) / "pids.max").write_text("max")
        assert failed(who, wanted) == {"limit.pids"}


@pytest.mark.root
def test_a_debugger(probe: Path) -> None:
    """ptrace(2) from outside, as root may: the VMM is not what it was started as any more."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    wanted = policy(probe)
    with container.running(wanted, ["/bin/vmm"]) as who:
        command = ["strace", "-o", "/dev/null", "-p", str(who.pid)]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
        try:
            assert tracer.stderr is not None
            assert b"attached" in tracer.stderr.readline()
            assert failed(who, wanted) == {"untraced"}
        finally:
            tracer.terminate()
            tracer.communicate(timeout=10)


@pytest.mark.root
def test_another_slot_than_the_recorded_one(probe: Path) -> None:
    """What is compared is the policy, not what the process says of itself."""
    wanted = policy(probe)
    with container.running(wanted, ["/bin/vmm"]) as who:
        moved = (IdRange(0, SLOT.uid_base + 1, 65_536),)
        broken = failed(who, dataclasses.replace(wanted, uid_map=moved))
    assert broken == {"identity.uid", "identity.uid_map"}


THREADS = """
import ctypes, os, sys, threading
libc = ctypes.CDLL(None)
def idle():
    sys.stdin.buffer.readline()
def privileged_not():
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS: of this thread only
    ready.set()
    done.wait()
ready, done = threading.Event(), threading.Event()
threading.Thread(target=privileged_not, daemon=True).start()
ready.wait()
print("ready", flush=True)
idle()
"""


def test_every_thread_is_read() -> None:
    """The leader is without no_new_privs, a thread is with it: both must be seen."""
    child = subprocess.Popen(
        ["python3", "-c", THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        who = identity.identify(child.pid)
        assert who is not None
        wanted = policy(Path("/bin/true"))
        read = reading.read_process(who, wanted)
        assert read.void is None
        leader, *others = read.processes[0].threads
        assert (leader.tid, leader.no_new_privileges) == (child.pid, 0)
        assert [each.no_new_privileges for each in others] == [1]
        fact = {fact.promise: fact for fact in judging.judge(wanted, read)}["no_new_privs"]
        assert fact.have == f"PID {child.pid} thread {child.pid}: 0"
    finally:
        child.communicate(b"\n", timeout=10)


def test_a_vmm_that_is_gone_keeps_no_promise() -> None:
    child = subprocess.Popen(["sleep", "60"])
    who = identity.identify(child.pid)
    child.kill()
    child.wait(10)
    assert who is not None
    found = facts(who, policy(Path("/bin/true")))
    assert {fact.verdict for fact in found.values()} == {Verdict.UNREADABLE}
    assert {fact.have for fact in found.values()} == {"the process is gone"}


@dataclass(frozen=True)
class Meanwhile(Layout):
    """A layout that lets something happen just when the sandbox's cgroup is listed."""

    happen: Callable[[], None]

    def directories(self, path: str) -> tuple[Path, ...]:
        self.happen()
        return super().directories(path)


@pytest.mark.parametrize("what", ["exit", "exec"])
def test_a_vmm_that_ends_or_becomes_another_while_it_is_read(what: str) -> None:
    child = subprocess.Popen(
        ["/bin/sh", "-c", "read go; [ $go = exit ] || exec sleep 60"], stdin=subprocess.PIPE
    )
    try:
        while not Path(f"/proc/{child.pid}/exe").readlink().name.endswith("sh"):
            time.sleep(0.001)
        who = identity.identify(child.pid)
        assert who is not None

        def happen() -> None:
            assert child.stdin is not None
            if not child.stdin.closed:
                child.stdin.write(what.encode() + b"\n")
                child.stdin.close()
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and identity.identify(child.pid) == who:
                time.sleep(0.001)

        layout = Meanwhile(cgroups.detect().hierarchies, happen)
        wanted = policy(Path("/bin/true"))
        read = reading.read_process(who, wanted, layout)
        assert read.void == "the process ended or became another program while it was read"
        assert {fact.verdict for fact in judging.judge(wanted, read)} == {Verdict.UNREADABLE}
    finally:
        child.kill()
        child.wait(10)


@pytest.mark.root
@pytest.mark.parametrize("isolation", ["strict", "standard"])
def test_an_ordinary_user_reads_its_own_vmm(isolation: str) -> None:
    """Under strict the VMM has another UID than the reader, who owns its user namespace."""
    with ordinary_user.made() as user:
        out = user.run(
            f"""
            import json, os
            from pathlib import Path
            from reconciler.confinement import judging
            from reconciler.confinement.policy import BindMount, policy_for
            from reconciler.linux import delegation, ids, reading, subids, userns
            from tests.linux import container
            uid, gid = os.getuid(), os.getgid()
            ranges = subids.ranges_of(subids.read_tables(), subids.user_name(uid), uid)
            maps = userns.outer_map(uid, gid, ranges)
            program = container.build_probe(Path.home())
            leaked = open("/etc/hostname")
            answers = []
            def no_swap(spec):
                del spec["linux"]["resources"]["memory"]["swap"]
            def no_filter(spec):
                del spec["linux"]["seccomp"]
            fds = [leaked.fileno()]
            for weaken, fds in ((None, ()), (no_swap, ()), (no_filter, ()), (None, fds)):
                wanted = policy_for(isolation={isolation!r}, ram_mib=128, cpus=1, own_uid=uid,
                    own_gid=gid, slot=ids.slots(ranges)[0],
                    cgroup=delegation.parent_of(uid) + "/vm",
                    binds=(BindMount(str(program), "/bin/vmm"),))
                with container.running(wanted, ["/bin/vmm"], maps=maps, weaken=weaken,
                        pass_fds=fds) as who:
                    facts = judging.judge(wanted, reading.read_process(who, wanted))
                answers.append([fact.promise for fact in facts if fact.failed])
            print(json.dumps(answers))
            """
        )
    assert json.loads(out) == [[], ["limit.swap"], ["seccomp"], ["files.open"]]


@pytest.mark.root
def test_a_stranger_cannot_read_it_and_says_so(probe: Path) -> None:
    """Another user's VMM: what /proc does not show is unreadable, never same."""
    wanted = policy(probe)
    with ordinary_user.made() as user, container.running(wanted, ["/bin/vmm"]) as who:
        out = user.run(
            f"""
            import json
            from reconciler.confinement import judging
            from reconciler.confinement.policy import BindMount, Slot, policy_for
            from reconciler.linux import identity, reading
            wanted = policy_for(isolation="strict", ram_mib=128, cpus=1, own_uid=0, own_gid=0,
                slot=Slot(0, {SLOT.uid_base}, {SLOT.gid_base}), cgroup={wanted.cgroup!r},
                binds=(BindMount({str(probe)!r}, "/bin/vmm"),))
            who = identity.identify({who.pid})
            facts = judging.judge(wanted, reading.read_process(who, wanted))
            print(json.dumps({{fact.promise: fact.verdict for fact in facts}}))
            """
        )
    verdicts = json.loads(out)
    assert verdicts["files.open"] == "unreadable"
    assert verdicts["namespace.net"] == "unreadable"
    assert verdicts["seccomp"] == "same"
    assert "differs" not in verdicts.values()
