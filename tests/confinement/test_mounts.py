from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.confinement import mounts
from reconciler.confinement.facts import Verdict
from reconciler.confinement.policy import BindMount
from reconciler.confinement.reading import MountReading, Unreadable
from tests.confinement import readings
from tests.confinement.readings import HOST, POLICY, mount


def texts(found: tuple[MountReading, ...]) -> list[str]:
    return [finding.text for finding in mounts.compare(found, POLICY, HOST)]


def changed(target: str, **change: object) -> tuple[MountReading, ...]:
    return tuple(
        replace(each, **change) if each.target == target else each  # type: ignore[arg-type]
        for each in readings.mounts()
    )


def test_what_was_declared_is_what_there_is() -> None:
    assert texts(readings.mounts()) == []


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (changed("/", options=("rw", "nosuid", "nodev")), "/ is not ro"),
        (changed("/", fstype="ext4"), "/ is a ext4 (/rootfs)"),
        (changed("/dev", options=("ro", "noexec")), "/dev is not nosuid"),
        (changed("/bin/vmm", options=("rw", "nosuid", "nodev")), "/bin/vmm is not ro"),
        (changed("/bin/vmm", root="/usr/bin/other"),
         "/bin/vmm is another file or directory (254:0 /usr/bin/other)"),
        (changed("/bin/vmm", root="/usr/bin/other//deleted"),
         "/bin/vmm is another file or directory (254:0 /usr/bin/other//deleted)"),
        (changed("/dev/null", root="/null//deleted"),
         "/dev/null is another file or directory (0:6 /null//deleted)"),
        (changed("/bin/vmm", device="254:1"),
         "/bin/vmm is another file or directory (254:1 /usr/bin/vmm)"),
        (changed("/dev/kvm", root="/mem"), "/dev/kvm is another file or directory (0:6 /mem)"),
        (changed("/dev/null", root="/mem"), "/dev/null is another file or directory (0:6 /mem)"),
        (changed("/proc/keys", root="/kmsg"),
         "/proc/keys is another file or directory (0:6 /kmsg)"),
        (changed("/proc/keys", fstype="proc", root="/keys", options=("ro",)),
         "/proc/keys is another file or directory (0:6 /keys)"),
        (changed("/proc/acpi", options=("rw",)), "/proc/acpi is not ro"),
        (changed("/proc/sys", options=("rw", "nosuid")), "/proc/sys is not ro"),
        (changed("/proc/sys", root="/"), "/proc/sys is a proc (/)"),
    ],
)  # fmt: skip
def test_a_mount_that_is_not_as_declared(found: tuple[MountReading, ...], said: str) -> None:
    assert texts(found) == [said]


@pytest.mark.parametrize("target", ["/", "/proc", "/dev", "/bin/vmm", "/dev/kvm", "/proc/sys"])
def test_a_mount_that_is_missing(target: str) -> None:
    found = tuple(each for each in readings.mounts() if each.target != target)
    assert texts(found) == [f"{target} is not mounted"]


@pytest.mark.parametrize("target", ["/dev/tty", "/dev/full"])
def test_what_a_runtime_may_leave_out(target: str) -> None:
    assert texts(tuple(each for each in readings.mounts() if each.target != target)) == []


@pytest.mark.parametrize(
    "extra",
    [
        mount("/etc", "ext4", "254:0", "/etc", "ro", "nosuid", "nodev"),
        mount("/sys/fs/cgroup", "cgroup2", "0:30", "/", "ro"),
        mount("/bin", "ext4", "254:0", "/usr/bin/vmm", "ro", "nosuid", "nodev"),
        mount("/bin/vmm/", "ext4", "254:0", "/usr/bin/vmm", "ro", "nosuid", "nodev"),
    ],
)
def test_a_mount_that_nobody_declared(extra: MountReading) -> None:
    said = f"{extra.target} is mounted and was not declared"
    assert texts((*readings.mounts(), extra)) == [said]


def test_a_mount_that_hides_another() -> None:
    again = next(each for each in readings.mounts() if each.target == "/bin/vmm")
    assert texts((*readings.mounts(), again)) == ["/bin/vmm is mounted 2 times, one hiding another"]


def test_a_path_that_this_kernel_lacks_need_not_be_read_only() -> None:
    assert "/proc/irq" in POLICY.read_only_paths
    assert "/proc/irq" not in HOST.present
    present = replace(HOST, present=HOST.present | {"/proc/irq"})
    (finding,) = mounts.compare(readings.mounts(), POLICY, present)
    assert (finding.text, finding.verdict) == ("/proc/irq is not mounted", Verdict.DIFFERS)


def test_a_read_only_file_that_an_upgrade_has_replaced_is_no_finding() -> None:
    assert texts(changed("/bin/vmm", root="/usr/bin/vmm//deleted")) == []


PLACES = frozenset({("/bin/vmm", "254:0", "/usr/bin/vmm.1"), ("/dev/null", "0:6", "/zero")})


@pytest.mark.parametrize("root", ["/usr/bin/vmm.1", "/usr/bin/vmm.1//deleted"])
def test_what_lay_there_at_the_start_may_have_lost_its_name(root: str) -> None:
    found = changed("/bin/vmm", root=root)
    assert texts(found)
    gone = replace(HOST, sources={**HOST.sources, "/usr/bin/vmm": Unreadable("gone")})
    for host in (HOST, gone):
        assert not list(mounts.compare(found, POLICY, host, PLACES))


def test_what_lay_there_at_the_start_is_asked_only_of_read_only_files_and_their_flags_count() -> (
    None
):
    for found, said in (
        (changed("/dev/null", root="/zero"),
         "/dev/null is another file or directory (0:6 /zero)"),
        (changed("/bin/vmm", root="/usr/bin/vmm.1", options=("rw", "nosuid", "nodev")),
         "/bin/vmm is not ro"),
        (changed("/bin/vmm", root="/usr/bin/vmm.2"),
         "/bin/vmm is another file or directory (254:0 /usr/bin/vmm.2)"),
    ):  # fmt: skip
        assert [each.text for each in mounts.compare(found, POLICY, HOST, PLACES)] == [said]


def test_a_writable_file_that_was_deleted_is_one() -> None:
    policy = replace(POLICY, binds=(BindMount("/usr/bin/vmm", "/bin/vmm", read_only=False),))
    gone = changed("/bin/vmm", root="/usr/bin/vmm//deleted", options=("rw", "nosuid", "nodev"))
    (finding,) = mounts.compare(gone, policy, HOST)
    assert "another file" in finding.text


def test_a_writable_mount_must_be_writable() -> None:
    policy = replace(POLICY, binds=(BindMount("/usr/bin/vmm", "/bin/vmm", read_only=False),))
    (finding,) = mounts.compare(readings.mounts(), policy, HOST)
    assert finding.text == "/bin/vmm is ro"
