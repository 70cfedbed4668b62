from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.confinement.reading import MappedReading
from reconciler.linux import proc_stat, procfs
from reconciler.linux.proc_stat import ParseError
from reconciler.linux.procfs import Limit, MapLine

CAPTURED = Path(__file__).parent.parent / "data" / "proc"
PARSERS: dict[str, Callable[[bytes], object]] = {
    "stat": proc_stat.parse_stat,
    "status": procfs.parse_status,
    "mountinfo": procfs.parse_mountinfo,
    "cgroup": procfs.parse_cgroup,
    "uid_map": procfs.parse_id_map,
    "gid_map": procfs.parse_id_map,
    "limits": procfs.parse_limits,
    "net-dev": procfs.parse_net_dev,
    "fdinfo-0": procfs.parse_fdinfo,
    "maps": procfs.parse_maps,
}


def captured(tree: str, name: str) -> bytes:
    return (CAPTURED / tree / name).read_bytes()


def test_stat_of_a_container() -> None:
    stat = proc_stat.parse_stat(captured("runc-root", "stat"))
    assert (stat.pid, stat.comm, stat.state, stat.parent_pid) == (15440, b"vmm", "R", 1)
    assert (stat.tty, stat.start_time_ticks) == (0, 172157)
    assert proc_stat.parse_environment(captured("runc-root", "stat")) == len("HOME=/\0")


def test_status_of_a_container() -> None:
    status = procfs.parse_status(captured("runc-root", "status"))
    assert status.uids == status.gids == (3_000_000,) * 4
    assert status.groups == ()
    assert status.pids_by_namespace == (15440, 1)
    assert (status.no_new_privileges, status.seccomp_mode, status.seccomp_filters) == (1, 2, 1)
    assert status.cap_bounding == status.cap_effective == 0
    assert (status.threads, status.tracer_pid) == (1, 0)


def test_status_of_roots_own_process() -> None:
    status = procfs.parse_status(captured("host", "status"))
    assert status.uids == (0, 0, 0, 0)
    assert status.cap_effective == status.cap_permitted == 0x1FFFEFFFFFF
    assert (status.no_new_privileges, status.seccomp_mode, status.seccomp_filters) == (0, 0, 0)


def test_mountinfo_of_a_container() -> None:
    data = captured("runc-root", "mountinfo")
    mounts = {each.target: each for each in procfs.parse_mountinfo(data)}
    assert mounts["/"].read_only
    assert (mounts["/"].fstype, mounts["/"].root) == ("tmpfs", "/rootfs")
    assert mounts["/bin/vmm"].root == "/opt/vmm/sleeper"
    assert mounts["/bin/vmm"].device == "254:0"
    # The mount is read-only, the file system is not.
    assert mounts["/bin/vmm"].read_only
    assert "rw" in mounts["/bin/vmm"].super_options
    assert not any(each.propagation for each in mounts.values())


def test_mountinfo_unescapes_and_keeps_propagation() -> None:
    line = rb"36 35 98:0 /mnt\0401//deleted /m\011nt\134\0122 rw master:1 shared:7 - ext3 "
    (mount,) = procfs.parse_mountinfo(line + rb"/dev/r\040t rw" + b"\n")
    assert mount.root == "/mnt 1//deleted"
    assert mount.target == "/m\tnt\\\n2"
    assert mount.propagation == ("master:1", "shared:7")
    assert mount.source == "/dev/r t"


def test_mountinfo_keeps_bytes_that_are_no_text() -> None:
    line = b"36 35 98:0 / /\xff\xfe rw - ext4 /dev/sda rw\n"
    assert os.fsencode(procfs.parse_mountinfo(line)[0].target) == b"/\xff\xfe"


def test_mountinfo_takes_a_source_that_is_empty_or_a_dash() -> None:
    first, second = procfs.parse_mountinfo(
        b"36 35 0:5 / /a rw - tmpfs  rw\n37 35 0:6 / /b rw - tmpfs - rw\n"
    )
    assert (first.source, second.source) == ("", "-")


def test_cgroup_of_a_container() -> None:
    entries = procfs.parse_cgroup(captured("runc-root", "cgroup"))
    assert {each.path for each in entries} == {"/box-sample"}
    assert {each.controllers for each in entries} >= {("pids",), ("memory",), ("name=systemd",), ()}


def test_cgroup_path_with_colons() -> None:
    (entry,) = procfs.parse_cgroup(b"4:cpu,cpuacct:/a:b/c:\n")
    assert (entry.controllers, entry.path) == (("cpu", "cpuacct"), "/a:b/c:")


def test_id_map() -> None:
    assert procfs.parse_id_map(captured("runc-root", "uid_map")) == (MapLine(0, 3_000_000, 65_536),)
    assert procfs.parse_id_map(captured("host", "uid_map")) == (MapLine(0, 0, 4_294_967_295),)
    assert procfs.parse_id_map(b"") == ()


def test_limits() -> None:
    limits = procfs.parse_limits(captured("runc-root", "limits"))
    assert limits["Max core file size"] == Limit(0, 0)
    assert limits["Max open files"] == Limit(1024, 1024)
    assert limits["Max cpu time"] == Limit(None, None)
    assert len(limits) == 16


def test_net_dev() -> None:
    assert procfs.parse_net_dev(captured("runc-root", "net-dev")) == ("lo",)
    assert procfs.parse_net_dev(captured("host", "net-dev")) == ("lo", "ifb0", "ifb1", "eth0")


def test_net_dev_name_with_a_colon() -> None:
    heading = captured("host", "net-dev").split(b"\n", 2)[:2]
    data = b"\n".join([*heading, b"eth0:1: 1 2 3", b""])
    assert procfs.parse_net_dev(data) == ("eth0:1",)


def test_fdinfo() -> None:
    info = procfs.parse_fdinfo(captured("host", "fdinfo-0"))
    assert (info.flags, info.mount_id, info.inode) == (0o100000, 24, 3)


def test_fdinfo_ignores_what_the_file_itself_adds() -> None:
    data = b"pos:\t0\nflags:\t02\nmnt_id:\t15\nino:\t9\nmnt_id: 99\nino: 98\ntfd: 5 events: 19\n"
    info = procfs.parse_fdinfo(data)
    assert (info.mount_id, info.inode) == (15, 9)


@pytest.mark.parametrize(
    ("added", "kind"),
    [
        (b"", ""),
        (b"eventfd-count:                0\n", "eventfd"),
        (b"tfd:        5 events:       19\n", "eventpoll"),
        (b"clockid: 1\nticks: 0\n", "timerfd"),
        (b"SqMask:\t0x3\nSqThread:\t-1\n", "io_uring"),
        (b"Pid:\t18391\nNSpid:\t18391\n", "pidfd"),
        (b"prog_type:\t6\n", "bpf program"),
        (b"pending:\t0\ntotal:\t0\n", "userfaultfd"),
        (b"fanotify flags:0 event-flags:8000\n", "fanotify"),
        (b"inotify wd:1 ino:9 sdev:2 mask:3\n", "inotify"),
    ],
)
def test_fdinfo_tells_what_the_kernel_made_for_whom(added: bytes, kind: str) -> None:
    head = b"pos:\t0\nflags:\t02000002\nmnt_id:\t17\nino:\t1038\n"
    assert procfs.parse_fdinfo(head + added).kind == kind


def test_fdinfo_before_linux_5_14() -> None:
    assert procfs.parse_fdinfo(b"pos:\t0\nflags:\t02\nmnt_id:\t15\n").inode is None


@pytest.mark.parametrize("tree", ["runc-root", "host"])
@pytest.mark.parametrize("name", PARSERS)
def test_every_truncation_is_refused_or_shorter(tree: str, name: str) -> None:
    """A cut file may lose whole lines, but never reads as something that was not in it."""
    parse = PARSERS[name]
    data = captured(tree, name)
    whole = parse(data)
    for end in range(len(data)):
        try:
            cut = parse(data[:end])
        except ParseError:
            continue
        if isinstance(whole, tuple) and isinstance(cut, tuple) and cut:
            assert cut[:-1] == whole[: len(cut) - 1]


@pytest.mark.parametrize("variables", [{}, {"": ""}, {"HOME": "/"}, {"A": "b" * 9, "C": ""}])
def test_how_long_the_environment_of_a_real_process_is(variables: dict[str, str]) -> None:
    done = subprocess.run(
        ["/bin/cat", "/proc/self/stat"], env=variables, capture_output=True, check=True, timeout=30
    )
    wanted = sum(len(name) + len(value) + 2 for name, value in variables.items())
    assert proc_stat.parse_environment(done.stdout) == wanted


def test_an_environment_that_the_kernel_does_not_show_is_not_an_empty_one() -> None:
    """A zombie has no memory, and so shows what a stranger is shown of every process."""
    with subprocess.Popen(["/bin/true"], stdin=subprocess.DEVNULL) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        hidden = Path(f"/proc/{child.pid}/stat").read_bytes()
    assert proc_stat.parse_environment(hidden) is None


@pytest.mark.parametrize("comm", [b"a b", b") R 1 1 (", b"((((", b")))))", b"x) S 1 (y", b"\xff\n"])
def test_stat_of_a_process_that_names_itself(comm: bytes) -> None:
    """A real process with a hostile name: the kernel writes the file, not this test."""
    code = (
        "import sys; open('/proc/self/comm', 'wb').write(bytes.fromhex(sys.argv[1]));"
        "sys.stdout.buffer.write(open('/proc/self/stat', 'rb').read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, comm.hex()], capture_output=True, check=True, timeout=30
    )
    stat = proc_stat.parse_stat(done.stdout)
    assert stat.parent_pid == os.getpid()
    assert stat.state == "R"
    assert stat.comm.startswith(comm.rstrip(b"\n")[:1])


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("stat", b""),
        ("stat", b"1 (x) S 1"),
        ("stat", b"1 x S " + b"0 " * 40),
        ("stat", b"one (x) S " + b"0 " * 40),
        ("status", b""),
        ("status", b"Uid:\t0\t0\t0\n"),
        ("mountinfo", b"36 35 98:0 / /m rw ext3 /dev/root rw\n"),
        ("mountinfo", b"36 35 98 / /m rw - ext3 /dev/root rw\n"),
        ("mountinfo", b"36 35 98:0 / /m m rw - ext3 /dev/root\n"),
        ("mountinfo", b"x 35 98:0 / /m rw - ext3 /dev/root rw\n"),
        ("cgroup", b"4:cpu\n"),
        ("cgroup", b"x:cpu:/\n"),
        ("cgroup", b"4:cpu:relative\n"),
        ("uid_map", b"0 1\n"),
        ("uid_map", b"0 1 2 3\n"),
        ("uid_map", b"0 1_0 65536\n"),
        ("limits", b""),
        ("limits", b"Limit\nMax core file size 0\n"),
        ("net-dev", b""),
        ("net-dev", b"lo: 1 2\n"),
        ("net-dev", b"a|b\nc|d\nlo 1 2\n"),
        ("fdinfo-0", b""),
        ("fdinfo-0", b"flags:\t09\nmnt_id:\t1\n"),
        ("fdinfo-0", b"flags:\t02\n"),
    ],
)
def test_what_the_kernel_never_writes_is_refused(name: str, data: bytes) -> None:
    with pytest.raises(ParseError):
        PARSERS[name](data)


def test_a_field_given_twice_is_refused() -> None:
    data = captured("runc-root", "status")
    with pytest.raises(ParseError):
        procfs.parse_status(data + b"NoNewPrivs:\t1\n")


@pytest.mark.parametrize("field", ["NoNewPrivs", "Seccomp", "Seccomp_filters", "CapBnd", "Uid"])
def test_a_missing_field_is_refused(field: str) -> None:
    lines = captured("runc-root", "status").splitlines(keepends=True)
    kept = b"".join(line for line in lines if not line.startswith(field.encode() + b":"))
    with pytest.raises(ParseError):
        procfs.parse_status(kept)


@given(st.binary(max_size=300))
@example(b"1 (x) S -1 0 0 \xff 0")
def test_garbage_raises_nothing_but_parse_error(data: bytes) -> None:
    for parse in PARSERS.values():
        try:
            parse(data)
        except ParseError:
            continue


def test_maps_of_a_vmm() -> None:
    mapped = procfs.parse_maps(captured("runc-root", "maps"))
    assert mapped[0] == MappedReading("fe:00", 2170921, "/usr/bin/qemu-system-x86_64")
    names = [each.name for each in mapped]
    assert "/kernel" in names
    assert len(set(names)) == len(names)
    assert not {"[heap]", "[vdso]", ""} & set(names)


def test_names_in_maps_are_as_somebody_chose_them() -> None:
    line = b"7f00-7f01 r--p 00000000 fe:00 7    "
    for name in (b"/a b", b"/a\\012b", b"/\xff", b"/x (deleted)", b"/7f00-7f01 r--p 0 fe:00 8 /y"):
        assert procfs.parse_maps(line + name + b"\n") == (
            MappedReading("fe:00", 7, os.fsdecode(name)),
        )


@pytest.mark.parametrize(
    "line",
    [
        b"7f00-7f01 r--p 00000000 fe:00",
        b"7f00-7f01 r--p 00000000 fe:00 x /a",
        b"7f00 r--p 00000000 fe:00 7 /a",
        b"7f00-7f01 r--p 00000000 fe 7 /a",
        b"or a second line of a name",
    ],
)
def test_maps_that_are_no_maps(line: bytes) -> None:
    with pytest.raises(ParseError):
        procfs.parse_maps(line)
