"""Every check by doing, as root: on this host as it is, and on one where something is amiss."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.backends import runtime
from reconciler.confinement.policy import Slot
from reconciler.engine import slots
from reconciler.engine.host import container, limits, room, throwaway
from reconciler.engine.host.check import Check, Group, Status
from reconciler.engine.host.checks import IDS, check_host
from reconciler.linux import cgroups
from tests.engine.host.reports import REPO, REPORT, in_a_mount_namespace, line_of, of_doctors
from tests.live import quiet

# A doctor starts containers, some seconds of it a test.
pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.usefixtures("ids")]


def found(made: tuple[Check, ...]) -> dict[str, Check]:
    return {each.id: each for each in made}


def test_every_check_is_made_in_its_order_and_leaves_nothing(home: Path) -> None:
    made = check_host(home, quiet)
    assert tuple(each.id for each in made) == IDS
    assert {each.tried_as for each in made} == {os.getuid()}
    assert of_doctors(home) == []


def test_a_container_is_really_started_as_a_slots_user(home: Path) -> None:
    check = found(check_host(home, quiet))["container.strict"]
    assert check.status is Status.OK
    bases = {f"UID {base}" for base in all_bases()}
    assert any(f"{each}:" in check.seen.found for each in bases)


def all_bases() -> list[int]:
    from reconciler.linux import ids, subids

    tables = subids.read_tables()
    return [slot.uid_base for slot in ids.slots(subids.ranges_of(tables, "root", 0))]


def test_a_program_that_is_not_confined_is_told_by_all_that_it_lacks(tmp_path: Path) -> None:
    ours = tmp_path / "status"
    ours.write_bytes(Path("/proc/self/status").read_bytes())
    seen = container.judge("runc", ours, Slot(0, 700_000, 700_000), "")
    assert seen.status is Status.FAILED
    for lack in ("UID 700000", "call filter", "no_new_privs", "all capabilities", "namespace"):
        assert lack in seen.found
    assert container.judge("runc", tmp_path / "nothing", None, "why").status is Status.FAILED


def test_a_limit_that_the_kernel_does_not_hold_is_told(tmp_path: Path) -> None:
    # A file that keeps what it had behind what is written stands for a kernel that rounds.
    (tmp_path / "pids.max").write_text("100000\n")
    said = limits.write_and_read_back(tmp_path / "pids.max", 129)
    assert said == f"{tmp_path}/pids.max: wrote 129, and the kernel holds 129000"
    assert "No such file" in (limits.write_and_read_back(tmp_path / "memory.max", 1) or "")


def test_the_trial_of_a_running_doctor_is_not_taken_from_it(home: Path) -> None:
    with throwaway.place(home) as name:
        throwaway.sweep(home)
        assert (home / "sandboxes" / name).is_dir()
        throwaway.sweep_own(home)
        assert not (home / "sandboxes" / name).exists()


def test_what_fails_says_how_to_mend_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOX_KERNEL", "/no/such/kernel")
    check = found(check_host(home, quiet))["kernel"]
    assert check.status is Status.FAILED
    assert "/no/such/kernel" in check.seen.found
    assert check.seen.fix is not None
    assert "BOX_KERNEL" in check.seen.fix


def test_a_home_without_a_kernel_fails_for_that_and_boots_nothing(home: Path) -> None:
    made = found(check_host(home, quiet))
    assert made["kernel"].status is Status.FAILED
    assert made["accelerator.strict"].status is Status.NOT_APPLICABLE


def test_what_a_killed_doctor_left_is_taken_away_by_the_next(home: Path) -> None:
    script = """
        import os, signal, sys
        from pathlib import Path
        from reconciler.engine import slots
        from reconciler.engine.host import throwaway
        from reconciler.linux import cgroups
        with throwaway.place(Path(sys.argv[1])) as name:
            slots.allocate(Path(sys.argv[1]), name)
            for directory in cgroups.detect().directories("/box/" + name):
                directory.mkdir(parents=True)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    import textwrap

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(home)],
        cwd=REPO,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    (name,) = [path.name for path in (home / "sandboxes").iterdir()]
    assert (home / "sandboxes" / name) in slots.held()
    check_host(home, quiet)
    assert not (home / "sandboxes" / name).exists()
    assert (home / "sandboxes" / name) not in slots.held()
    assert not [path for path in cgroups.detect().directories(f"/box/{name}") if path.exists()]


def test_a_sandbox_of_somebodys_that_is_called_like_a_trial_stays(home: Path) -> None:
    name = "doctor-4194305-1-00000000"
    (home / "sandboxes" / name).mkdir()
    (home / "sandboxes" / name / "record.json").write_text("{}")
    (home / "sandboxes" / "doctor-who").mkdir()
    check_host(home, quiet)
    assert {path.name for path in (home / "sandboxes").iterdir()} == {name, "doctor-who"}


def copy_etc(tmp_path: Path) -> None:
    """All of it: a file that somebody replaces meanwhile is no longer what is mounted on it."""
    # usermod of others on this host has locks there for a moment.
    passing = shutil.ignore_patterns("*.lock", "*+")
    shutil.copytree("/etc", tmp_path / "etc", symlinks=True, ignore=passing)


def with_subordinate_ids(lines: str, home: Path, tmp_path: Path) -> str:
    """The report on a host whose /etc/subuid and /etc/subgid are `lines`."""
    copy_etc(tmp_path)
    for name in ("subuid", "subgid"):
        (tmp_path / "etc" / name).write_text(lines)
    return in_a_mount_namespace(f"mount --bind {tmp_path}/etc /etc", REPORT, home)


def test_without_subordinate_ids_strict_fails_and_the_usermod_line_is_given(
    home: Path, tmp_path: Path
) -> None:
    said = with_subordinate_ids("somebody:100000:65536\n", home, tmp_path)
    slot_line = line_of(said, "slots")
    assert slot_line.startswith("slots failed slots for strict sandboxes: 0, held: 0, free: 0")
    assert "fix: usermod --add-subuids 524288-589823 --add-subgids 524288-589823 root" in slot_line
    assert line_of(said, "container.strict").startswith("container.strict not_applicable no slot")


def test_where_there_are_no_tables_of_ids_the_fix_makes_them(home: Path, tmp_path: Path) -> None:
    copy_etc(tmp_path)
    for name in ("subuid", "subgid"):
        (tmp_path / "etc" / name).unlink()
    mend = """
import os, shlex, subprocess
os.umask(0o077)
(fix,) = [each.seen.fix for each in check_host(Path(sys.argv[1]), print) if each.id == "slots"]
subprocess.run(shlex.split(fix), check=True, timeout=60)
print(*(f"{os.stat(f'/etc/{each}').st_mode:o}" for each in ("subuid", "subgid")))
"""
    imports, rest = REPORT.split("for each", 1)
    script = f"{imports}{mend}for each{rest}"
    said = in_a_mount_namespace(f"mount --bind {tmp_path}/etc /etc", script, home)
    assert "slots ok slots for strict sandboxes: 16, " in said
    assert "100644 100644\n" in said


def test_a_line_that_fills_the_disk_is_cut(home: Path, tmp_path: Path) -> None:
    said = with_subordinate_ids("root:" + "9" * 3_000_000 + "x:1\n", home, tmp_path)
    assert len(said) < 20_000
    assert line_of(said, "slots").startswith("slots failed /etc/subuid:1: not owner:start:count")


def test_ids_that_two_lines_give_are_a_finding(home: Path, tmp_path: Path) -> None:
    said = with_subordinate_ids("root:3000000000:1048576\nother:3000100000:65536\n", home, tmp_path)
    assert line_of(said, "ids").startswith("ids finding IDs given twice")
    assert "/etc/subuid:1 (root: 3000000000-3001048575) and /etc/subuid:2 (other" in line_of(
        said, "ids"
    )
    assert "free: 14; 2 hold IDs of others and are not used" in line_of(said, "slots")


def test_a_host_without_qemu_and_with_another_runc_is_told_so(home: Path, tmp_path: Path) -> None:
    # The directories where programs are looked for, with one taken away and one that only pretends.
    runc = tmp_path / "runc"
    runc.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo runc version 1.1.11 && exit 0\nexit 0\n'
    )
    runc.chmod(0o755)
    real = runtime.find_runtime().path
    qemu = Path(shutil.which(f"qemu-system-{os.uname().machine}") or "")
    shell = f"mount --bind {runc} {real} && mount --bind /dev/null {qemu}"
    said = in_a_mount_namespace(shell, REPORT, home)
    assert line_of(said, "qemu").startswith("qemu failed")
    assert "apt-get install qemu-system" in line_of(said, "qemu") or "dnf" in line_of(said, "qemu")
    assert line_of(said, "version.qemu").startswith("version.qemu not_applicable")
    # It says that it ran, and started nothing.
    assert line_of(said, "container.strict").startswith("container.strict failed")
    if real.name == "runc":
        assert "CVE-2025-31133" in line_of(said, "version.runc")


def test_a_table_that_cannot_be_understood_is_told_by_its_line(home: Path, tmp_path: Path) -> None:
    said = with_subordinate_ids("root:100000:65536\nroot:lots\n", home, tmp_path)
    for check_id in ("ids", "slots"):
        line = line_of(said, check_id)
        assert line.startswith(f"{check_id} failed /etc/subuid:2")
        assert line.endswith("fix: correct that line: subuid(5), passwd(5)")
    assert line_of(said, "container.strict").startswith("container.strict failed")


def test_a_program_that_ends_badly_is_told_with_its_line(home: Path, tmp_path: Path) -> None:
    broken = tmp_path / "program"
    broken.write_text("#!/bin/sh\necho no such library >&2\nexit 127\n")
    broken.chmod(0o755)
    real = runtime.find_runtime().path
    said = in_a_mount_namespace(f"mount --bind {broken} {real}", REPORT, home)
    line = line_of(said, "runtime")
    assert line.startswith("runtime failed")
    assert f"$ {real} --version" in line
    assert "no such library" in line
    assert "fix: run that command yourself" in line


def test_a_runtime_that_starts_nothing_is_not_mended_by_asking_the_doctor(
    home: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "program"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo runc version 1.1.5 && exit\n'
        "echo no such key >&2; exit 1\n"
    )
    broken.chmod(0o755)
    real = runtime.find_runtime().path
    said = in_a_mount_namespace(f"mount --bind {broken} {real}", REPORT, home)
    line = line_of(said, "container.strict")
    assert line.startswith("container.strict failed The OCI runtime")
    assert line.endswith("install your distribution's own OCI runtime again")


def test_a_full_disk_is_no_programs_fault(home: Path) -> None:
    shell = f"mount -t tmpfs -o size=300k,mode=700 tmpfs {home}"
    opening = (
        "from reconciler.engine.home import private_home\nprivate_home(Path(sys.argv[1]))\n"
        "import subprocess\n"
        "(Path(sys.argv[1]) / 'tmp').mkdir()\n"
        "subprocess.run(['dd', 'if=/dev/zero', 'bs=4k', f'of={sys.argv[1]}/fill'], check=False)\n"
    )
    script = REPORT.replace("for each", f"{opening}for each", 1)
    said = in_a_mount_namespace(shell, script, home)
    wanted = f"images failed the file system of {home} is full fix: free some disk space: du -sh"
    assert line_of(said, "images").startswith(wanted)


def test_a_full_disk_fails_by_its_numbers(home: Path) -> None:
    shell = f"mount -t tmpfs -o size=8m,nr_inodes=100,mode=700 tmpfs {home}"
    opening = "from reconciler.engine.home import private_home\nprivate_home(Path(sys.argv[1]))\n"
    script = REPORT.replace("for each", f"{opening}for each", 1)
    said = in_a_mount_namespace(shell, script, home)
    assert "8 of 8 MiB free" in line_of(said, "disk") or "7 of 8 MiB free" in line_of(said, "disk")
    assert line_of(said, "disk").startswith("disk failed")
    assert line_of(said, "inodes").startswith("inodes failed")


def test_cgroups_that_cannot_be_written_fail(home: Path) -> None:
    mounts = " && ".join(
        f"mount -o remount,bind,ro {each.mount}" for each in cgroups.detect().hierarchies
    )
    said = in_a_mount_namespace(mounts, REPORT, home)
    for check_id in ("cgroups", "container.strict"):
        assert line_of(said, check_id).startswith(f"{check_id} failed"), said


def test_two_at_once_do_not_disturb_each_other(home: Path) -> None:
    command = [sys.executable, "-c", REPORT, str(home)]
    both = [
        subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for child in both:
        said, _ = child.communicate(timeout=100)
        assert line_of(said, "container.strict").startswith("container.strict ok")
        assert line_of(said, "cgroups").startswith("cgroups ok")
    assert of_doctors(home) == []


def test_slots_count_what_is_held_and_what_is_free(home: Path) -> None:
    (home / "sandboxes" / "web").mkdir()
    before = room.look_slots().found
    slots.allocate(home, "web")
    try:
        after = room.look_slots().found
    finally:
        slots.release(home, "web")
    free = [int(text.split("free: ")[1].split(";")[0]) for text in (before, after)]
    # Others work on this host too: it may only have become one fewer, or fewer still.
    assert free[1] < free[0]


def test_groups_are_as_documented() -> None:
    assert len(set(IDS)) == len(IDS)
    page = (REPO / "docs" / "doctor.md").read_text()
    assert [each for each in IDS if f"`{each}`" not in page] == []
    assert set(Group) == {Group.NEEDED, Group.CAPACITY, Group.HOST}


MOMENTS = (
    "sandboxes/doctor-*",
    "sandboxes/doctor-*/data/status",
    "runtime/doctor-*.log",
    "tmp/?*/tree",
)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_leaves_nothing(
    home: Path, signo: signal.Signals, moment: str
) -> None:
    # Some of it is there for a few milliseconds, in which a busy host may not let us look: then
    # that doctor has come to its end, and the next one has the moment too.
    while signalled(home, signo, moment) in {0, 1}:
        pass
    assert of_doctors(home) == []


def signalled(home: Path, signo: signal.Signals, moment: str) -> int:
    """The exit status of a doctor that gets the signal when the moment is seen, if it is."""
    child = subprocess.Popen(
        [sys.executable, "-m", "reconciler", "doctor"],
        cwd=REPO,
        env={**os.environ, "BOX_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not any(home.glob(moment)) and child.poll() is None:
        pass
    child.send_signal(signo)
    return child.wait(60)
