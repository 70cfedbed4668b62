from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.confinement.facts import Fact, Verdict
from reconciler.confinement.judging import judge
from reconciler.confinement.noting import from_json, note, to_json
from reconciler.confinement.policy import IdRange
from reconciler.confinement.promises import PROMISES, promise
from reconciler.confinement.reading import (
    FileReading,
    MappedReading,
    NamespaceId,
    Neighbour,
    PlaceReading,
    Reading,
    Unreadable,
    Withheld,
)
from tests.confinement.readings import (
    ALLOWS_ALL,
    HOST,
    LIMITS,
    PID,
    POLICY,
    READING,
    REFUSES_ALL,
    process,
    thread,
)

LOST = Unreadable("permission denied")


def judged(reading: Reading) -> dict[str, Fact]:
    return {fact.promise: fact for fact in judge(POLICY, reading)}


def with_thread(**change: object) -> Reading:
    """The second of two threads is changed: the leader alone tells nothing."""
    other = replace(thread(PID + 1), **change)  # type: ignore[arg-type]
    return replace(READING, processes=(process(PID, thread(), other),))


def with_process(**change: object) -> Reading:
    return replace(READING, processes=(replace(process(), **change),))  # type: ignore[arg-type]


def with_helper(**change: object) -> Reading:
    """A second process of the cgroup is changed; that it is there at all is a finding too."""
    members = frozenset({PID, 60})
    helper = replace(process(60), **change)  # type: ignore[arg-type]
    return replace(READING, processes=(process(), helper), members=members)


def with_limits(**change: int | None) -> Reading:
    return replace(READING, limits=replace(LIMITS, **change))  # type: ignore[arg-type]


def with_devices(*lines: str) -> Reading:
    return replace(READING, limits=replace(LIMITS, devices=frozenset(lines)))


def beside(**change: object) -> Reading:
    """Another sandbox runs, which has something that it must not have."""
    apart = NamespaceId(4, 9000)
    spaces: dict[str, NamespaceId | Unreadable] = dict.fromkeys(POLICY.namespaces, apart)
    other = Neighbour(spaces, (IdRange(0, 365_536, 65_536),), (IdRange(0, 365_536, 65_536),))
    spaces.update(change.pop("namespaces", {}))  # type: ignore[call-overload]
    return replace(READING, neighbours={"web": replace(other, **change)})  # type: ignore[arg-type]


def test_every_promise_is_judged_in_its_order() -> None:
    facts = judge(POLICY, READING)
    assert [fact.promise for fact in facts] == [each.id for each in PROMISES]
    others = {fact.promise: fact.verdict for fact in facts if fact.verdict is not Verdict.SAME}
    assert others == {"label": Verdict.NOT_APPLICABLE}


def test_every_promise_has_a_sentence_and_one_id() -> None:
    assert len({each.id for each in PROMISES}) == len(PROMISES)
    assert all(each.sentence.endswith(".") for each in PROMISES)
    assert promise("seccomp").sentence.startswith("A system call filter")
    with pytest.raises(KeyError):
        promise("nothing")


def capabilities(kind: str, mask: int) -> dict[str, int]:
    return {**thread().capabilities, kind: mask}


DIFFERENT: list[tuple[str, Reading]] = [
    *(("identity.uid", with_thread(uids=(*[300_000] * n, 1000, *[300_000] * (3 - n))))
      for n in range(4)),
    ("identity.uid", with_thread(uids=(365_536,) * 4)),
    ("identity.uid", with_thread(uids=(299_999,) * 4)),
    ("identity.uid", with_thread(uids=(65_534, 65_534, 65_534, 0))),
    ("identity.gid", with_thread(gids=(300_000, 300_000, 300_000, 0))),
    ("identity.groups", with_thread(groups=(300_000,))),
    ("identity.groups", with_thread(groups=(65_534,))),
    ("identity.uid_map", with_process(uid_map=())),
    ("identity.uid_map", with_process(uid_map=(*POLICY.uid_map, IdRange(65_536, 1000, 1)))),
    ("identity.uid_map", with_process(uid_map=(IdRange(0, 300_000, 65_535),))),
    ("identity.gid_map", with_process(gid_map=(IdRange(0, 0, 4_294_967_294),))),
    *(("capabilities", with_thread(capabilities=capabilities(kind, 1 << 21)))
      for kind in ("inheritable", "permitted", "effective", "bounding", "ambient")),
    ("capabilities", with_thread(capabilities=capabilities("bounding", 1 << 60))),
    ("no_new_privs", with_thread(no_new_privileges=0)),
    ("seccomp", with_thread(seccomp_mode=0, seccomp_filters=0)),
    ("seccomp", with_thread(seccomp_mode=1)),
    ("seccomp", with_thread(seccomp_filters=0)),
    ("untraced", with_thread(tracer_pid=9)),
    ("seccomp.filter", with_thread(programs=(ALLOWS_ALL,))),
    ("seccomp.filter", with_thread(programs=())),
    ("seccomp.filter", replace(with_thread(seccomp_filters=3), noted=note(READING))),
    ("seccomp.filter", replace(with_thread(programs=(REFUSES_ALL,) * 2), noted=note(READING))),
    ("label", with_process(threads=tuple(replace(thread(), label=each) for each in "ab"))),
    ("program", with_process(program=PlaceReading("/memfd:x (deleted)", 9))),
    ("program", with_process(program=PlaceReading("/bin/vmm", 101))),
    ("environment", with_process(environment_bytes=7)),
    ("root", with_process(root=PlaceReading("/srv/jail", 100))),
    ("root", with_process(root=PlaceReading("/", 21))),
    ("root", with_process(directory=PlaceReading("/", 21))),
    ("root", with_process(directory=PlaceReading("/", 101))),
    ("root", with_thread(root=(254, 2))),
    ("root", with_thread(directory=(254, 2))),
    ("terminal", with_process(tty=34_816)),
    *(("apart.namespaces", beside(namespaces={kind: thread().namespaces[kind]}))
      for kind in POLICY.namespaces),
    ("apart.ids", beside(uid_map=(IdRange(0, 365_535, 65_536),))),
    ("apart.ids", beside(uid_map=(IdRange(0, 1000, 1), IdRange(1, 300_001, 1)))),
    ("apart.ids", beside(gid_map=POLICY.gid_map)),
    ("mounts.masked", with_process(masked={"/proc/keys": "something else (mode 100400)"})),
    ("mounts.masked", with_process(masked={"/proc/acpi": "a directory of 9"})),
    ("files.kinds", with_process(files=(FileReading(4, 9, 1, "io_uring"),))),
    ("files.kinds", with_process(files=(FileReading(4, 9, 1, "kvm"),))),
    ("oom_score", replace(READING, host=replace(HOST, oom_score_adj=500))),
    *((f"namespace.{kind}", with_thread(namespaces={**thread().namespaces, kind: own}))
      for kind, own in HOST.namespaces.items() if isinstance(own, NamespaceId)),
    ("namespace.net",
     with_thread(namespaces={**thread().namespaces, "net": NamespaceId(4, 99)})),
    ("network.interfaces", with_process(interfaces=("lo", "eth0"))),
    ("network.interfaces", with_process(interfaces=("lo", "lo:1"))),
    ("cgroup.path", with_thread(cgroups={"memory": "/", "pids": "/box-1000/vm"})),
    ("cgroup.path", with_thread(cgroups={"pids": "/box-1000/vm"})),
    ("cgroup.path", with_thread(cgroups={"memory": "/box-1000/vm/x", "pids": "/box-1000/vm"})),
    *(("cgroup.path", with_thread(cgroups={**thread().cgroups, controller: "/"}))  # type: ignore[dict-item]
      for controller in ("memory", "pids", "freezer", "devices")),
    ("limit.memory", with_limits(hangs_when_full=True)),
    ("cgroup.members", replace(READING, members=frozenset({PID, 60}))),
    ("cgroup.members", replace(READING, members=frozenset({PID, 0}))),
    ("cgroup.members", replace(READING, members=frozenset())),
    ("limit.pids", with_limits(pids=None)),
    ("limit.pids", with_limits(pids=POLICY.pids_limit + 1)),
    ("limit.memory", with_limits(memory=None)),
    ("limit.memory", with_limits(memory=POLICY.memory_limit_bytes + 1)),
    ("limit.swap", with_limits(memory_and_swap=None)),
    ("limit.core", with_process(rlimits={**process().rlimits, "RLIMIT_CORE": (0, None)})),  # type: ignore[dict-item]
    ("limit.rlimits", with_process(rlimits={"RLIMIT_CORE": (0, 0)})),
    ("oom_score", with_process(oom_score_adj=499)),
    ("files.open", with_process(files=(FileReading(4, 20, 8, ""),))),
    ("files.open", with_process(files=(FileReading(4, 21, 7, ""),))),
    ("files.open", with_process(files=(FileReading(4, 9999, 1, ""),))),
    *(("files.mapped", with_process(mapped=(each,))) for each in (
        MappedReading("fe:00", 78, "/bin/vmm"),
        MappedReading("fe:00", 77, "/etc/shadow"),
        MappedReading("fe:00", 77, "/memfd:ram (deleted)"),
        MappedReading("fe:00", 9, "anon_inode:kvm-vcpu:0"),
        MappedReading("00:0e", 9, "anon_inode:[io_uring]"),
        MappedReading("00:05", 3, "/dev/mem"),
    )),
    *(("limit.devices", with_devices(each))
      for each in ("a *:* rwm", "b 8:0 r", "c 1:1 rw", "c *:* rm", "nonsense")),
]  # fmt: skip


@pytest.mark.parametrize(("broken", "reading"), DIFFERENT)
def test_one_difference_breaks_one_promise(broken: str, reading: Reading) -> None:
    facts = judged(reading)
    assert facts[broken].verdict is Verdict.DIFFERS
    assert facts[broken].have != facts[broken].want
    assert {name for name, fact in facts.items() if fact.failed} == {broken}


UNREADABLE: list[tuple[str, Reading]] = [
    ("identity.uid", with_thread(uids=(65_534,) * 4)),
    ("identity.gid", with_thread(gids=(300_000, 65_534, 300_000, 300_000))),
    ("identity.uid_map", with_process(uid_map=LOST)),
    ("identity.uid_map", with_process(uid_map=(IdRange(0, 4_294_967_295, 65_536),))),
    ("identity.gid_map", with_process(gid_map=LOST)),
    ("namespace.net", with_thread(namespaces={**thread().namespaces, "net": LOST})),
    ("namespace.user", replace(
        READING, host=replace(HOST, namespaces={**HOST.namespaces, "user": LOST}))),
    ("network.interfaces", with_process(interfaces=LOST)),
    ("cgroup.path", with_thread(cgroups=LOST)),
    ("cgroup.members", replace(READING, members=LOST)),
    ("limit.core", with_process(rlimits=LOST)),
    ("oom_score", with_process(oom_score_adj=LOST)),
    ("mounts.declared", with_process(mounts=LOST)),
    ("files.open", with_process(files=LOST)),
    ("files.kinds", with_process(files=LOST)),
    ("files.mapped", with_process(mapped=LOST)),
    ("files.mapped", with_process(parts=LOST)),
    ("files.mapped", with_process(mounts=LOST)),
    ("seccomp.filter", with_thread(programs=LOST)),
    ("seccomp.filter", with_thread(programs=None)),
    ("seccomp.filter", with_thread(programs=(b"\0" * 8,))),
    ("seccomp.filter", with_thread(programs=(b"",))),
    ("seccomp.filter", replace(READING, host=replace(HOST, machine="riscv64"))),
    ("label", with_thread(label=LOST)),
    ("program", with_process(program=LOST)),
    ("program", with_process(mounts=LOST)),
    ("environment", with_process(environment_bytes=LOST)),
    ("root", with_process(root=LOST)),
    ("root", with_process(directory=LOST)),
    ("root", with_process(mounts=LOST)),
    ("root", with_thread(root=LOST)),
    ("root", with_thread(directory=LOST)),
    ("terminal", with_process(tty=LOST)),
    ("mounts.masked", with_process(masked=LOST)),
    ("apart.namespaces", beside(namespaces={"net": LOST})),
    ("apart.ids", beside(uid_map=LOST)),
    ("apart.ids", beside(gid_map=LOST)),
    ("files.open", with_process(files=(FileReading(4, 20, None, ""),))),
    ("limit.pids", replace(READING, limits=LOST)),
    ("limit.memory", replace(READING, limits=LOST)),
    ("limit.swap", replace(READING, limits=LOST)),
    ("limit.devices", replace(READING, limits=LOST)),
    ("mounts.declared", replace(
        READING, host=replace(HOST, sources={**HOST.sources, "/usr/bin/vmm": LOST}))),
]  # fmt: skip


@pytest.mark.parametrize(("lost", "reading"), UNREADABLE)
def test_what_cannot_be_read_is_never_same(lost: str, reading: Reading) -> None:
    fact = judged(reading)[lost]
    assert fact.verdict is Verdict.UNREADABLE
    assert fact.failed


def test_a_missing_namespace_is_unreadable_not_same() -> None:
    spaces = {kind: each for kind, each in thread().namespaces.items() if kind != "net"}
    assert judged(with_thread(namespaces=spaces))["namespace.net"].verdict is Verdict.UNREADABLE


def test_a_namespace_that_this_kernel_lacks_is_not_applicable() -> None:
    ours = {kind: each for kind, each in HOST.namespaces.items() if kind != "cgroup"}
    fact = judged(replace(READING, host=replace(HOST, namespaces=ours)))["namespace.cgroup"]
    assert fact.verdict is Verdict.NOT_APPLICABLE
    assert not fact.failed


def test_a_difference_outweighs_what_cannot_be_read() -> None:
    both = replace(process(), threads=(thread(), replace(thread(), uids=(65_534,) * 4)))
    wrong = replace(process(60), threads=(replace(thread(60), uids=(0,) * 4),))
    fact = judged(replace(READING, processes=(both, wrong)))["identity.uid"]
    assert fact.verdict is Verdict.DIFFERS
    assert fact.have == "PID 60 thread 60: 0 0 0 0"


@pytest.mark.parametrize(
    ("broken", "change"),
    [
        ("network.interfaces", {"interfaces": ("eth0",)}),
        ("identity.uid_map", {"uid_map": ()}),
        ("oom_score", {"oom_score_adj": -1000}),
        ("files.open", {"files": (FileReading(4, 20, 8, ""),)}),
        ("files.mapped", {"mapped": (MappedReading("fe:00", 1, "/etc/shadow"),)}),
        ("mounts.declared", {"mounts": ()}),
    ],
)
def test_other_processes_of_the_cgroup_are_held_to_the_same(
    broken: str, change: dict[str, object]
) -> None:
    facts = judged(with_helper(**change))
    failed = {name for name, fact in facts.items() if fact.failed}
    assert {broken, "cgroup.members"} <= failed


def test_a_tighter_limit_is_in_order() -> None:
    reading = replace(READING, limits=replace(LIMITS, pids=1, memory=1, memory_and_swap=1))
    assert not any(fact.failed for fact in judge(POLICY, reading))


def test_devices_are_read_where_they_can_be_held() -> None:
    for reading in (
        replace(READING, limits=replace(LIMITS, devices=None)),
        replace(with_devices("a *:* rwm"), host=replace(HOST, is_root=False)),
    ):
        assert judged(reading)["limit.devices"].verdict is Verdict.NOT_APPLICABLE


def test_what_replaced_a_part_since_is_not_what_it_has() -> None:
    """A package was upgraded: the process keeps the file that was mounted, under its old name."""
    kept = MappedReading("fe:00", 77, "/bin/vmm (deleted)")
    assert not judged(with_process(mapped=(kept,)))["files.mapped"].failed


def test_a_part_on_an_overlay_may_have_another_inode() -> None:
    below = MappedReading("fe:00", 12, "/bin/vmm")
    mounts = tuple(
        replace(each, fstype="overlay") if each.target == "/bin/vmm" else each
        for each in process().mounts  # type: ignore[union-attr]
    )
    assert not judged(with_process(mapped=(below,), mounts=mounts))["files.mapped"].failed


def test_a_map_in_several_lines_is_the_same_map() -> None:
    split = (IdRange(1000, 301_000, 64_536), IdRange(0, 300_000, 1000))
    assert not judged(with_process(uid_map=split))["identity.uid_map"].failed


@pytest.mark.parametrize(
    "reading",
    [
        replace(READING, void="the process is gone"),
        replace(READING, processes=()),
        replace(READING, void="moved", processes=()),
    ],
)
def test_a_void_reading_proves_nothing(reading: Reading) -> None:
    facts = judge(POLICY, reading)
    assert {fact.verdict for fact in facts} == {Verdict.UNREADABLE}
    assert len(facts) == len(PROMISES)


def test_a_policy_with_capabilities_wants_exactly_these() -> None:
    wanted = replace(POLICY, capabilities=("CAP_CHOWN",))
    one = dict.fromkeys(("inheritable", "permitted", "effective", "bounding"), 1) | {"ambient": 0}
    for masks, same in ((one, True), (thread().capabilities, False)):
        threads = (replace(thread(), capabilities=masks),)
        reading = replace(READING, processes=(replace(process(), threads=threads),))
        facts = {fact.promise: fact for fact in judge(wanted, reading)}
        assert facts["capabilities"].failed is not same


def test_a_sandbox_beside_with_nothing_in_common() -> None:
    facts = judged(beside())
    assert not any(fact.failed for fact in facts.values())
    assert facts["apart.ids"].have == "nothing in common with 1 other sandbox"


def test_a_namespace_of_the_host_is_not_told_twice() -> None:
    ours = HOST.namespaces["uts"]
    spaces = {**thread().namespaces, "uts": ours}
    reading = replace(
        beside(namespaces={"uts": ours}), processes=with_thread(namespaces=spaces).processes
    )
    facts = {fact.promise for fact in judge(POLICY, reading) if fact.failed}
    assert facts == {"namespace.uts"}


def test_under_standard_all_sandboxes_have_one_uid() -> None:
    policy = replace(POLICY, isolation="standard")
    facts = {fact.promise: fact for fact in judge(policy, beside(uid_map=POLICY.uid_map))}
    assert facts["apart.ids"].verdict is Verdict.NOT_APPLICABLE


def test_what_is_noted_survives_being_written_down() -> None:
    noted = note(with_thread(label="box:c1", seccomp_filters=3))
    assert ("/bin/vmm", "254:0", "/usr/bin/vmm") in noted.places
    assert (sorted(noted.filters), *noted.labels, len(noted.programs)) == ([2, 3], "box:c1", 1)
    assert from_json(to_json(noted)) == noted
    before = to_json(noted)
    for broken in (
        *({k: v for k, v in before.items() if k != gone} for gone in before),
        {},
        {**before, "filters": ["2"]},
        {**before, "labels": "x"},
        {**before, "places": 5},
        {**before, "places": [["/bin/vmm", "254:0"]]},
        {**before, "places": [["/bin/vmm", "254:0", 7]]},
        {**before, "open_files": [[20]]},
        {**before, "open_files": [[20, "7"]]},
    ):
        with pytest.raises(ValueError, match="not what is noted"):
            from_json(broken)


def test_what_is_compared_with_a_start_that_is_lost_is_unreadable() -> None:
    lost = replace(with_process(threads=(replace(thread(), programs=None),)), noted=LOST)
    found = {name: fact for name, fact in judged(lost).items() if fact.failed}
    # No module labels processes here, so there is no label to compare.
    assert set(found) == {"seccomp.filter", "mounts.declared", "files.open"}
    assert {fact.verdict for fact in found.values()} == {Verdict.UNREADABLE}
    assert {fact.have for fact in found.values()} == {LOST.why}
    labelled = replace(with_process(threads=(replace(thread(), label="box:c1"),)), noted=LOST)
    assert judged(labelled)["label"].verdict is Verdict.UNREADABLE


def test_a_difference_outweighs_that_the_start_is_lost() -> None:
    extra = FileReading(9, 9999, 5, "")
    fact = judged(replace(with_process(files=(extra,)), noted=LOST))["files.open"]
    assert (fact.verdict, fact.have) == (Verdict.DIFFERS, "fd 9 is a file of the host (inode 5)")


@pytest.mark.parametrize("programs", [None, Withheld("not for you")])
def test_a_filter_that_is_not_read_again_is_the_one_whose_number_is_unchanged(
    programs: Withheld | None,
) -> None:
    noted = note(READING)
    later = replace(with_process(threads=(replace(thread(), programs=programs),)), noted=noted)
    fact = judged(later)["seccomp.filter"]
    assert fact.verdict is Verdict.SAME
    assert fact.have.endswith("sha256 " + "".join(noted.programs))


def test_a_filter_that_the_kernel_never_showed_is_not_applicable() -> None:
    hidden = replace(thread(), programs=Withheld("it takes CAP_SYS_ADMIN"))
    at_start = with_process(threads=(hidden,))
    fact = judged(at_start)["seccomp.filter"]
    assert (fact.verdict, fact.have) == (Verdict.NOT_APPLICABLE, "it takes CAP_SYS_ADMIN")
    later = replace(with_process(threads=(replace(thread(), programs=None),)), noted=note(at_start))
    assert judged(later)["seccomp.filter"].verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("label", "later", "verdict"),
    [
        ("unconfined", "unconfined", Verdict.NOT_APPLICABLE),
        ("box:c1", "box:c1", Verdict.SAME),
        ("box:c1", "box:c2", Verdict.DIFFERS),
        ("box:c1", "unconfined", Verdict.DIFFERS),
    ],
)
def test_a_label_must_be_that_of_the_start(label: str, later: str, verdict: Verdict) -> None:
    noted = note(with_process(threads=(replace(thread(), label=label),)))
    reading = replace(with_process(threads=(replace(thread(), label=later),)), noted=noted)
    assert judged(reading)["label"].verdict is verdict


def test_a_reader_in_another_mount_namespace_goes_by_the_starts_numbers() -> None:
    elsewhere = replace(HOST, open_files=frozenset({(77, 7)}))
    read = replace(READING, host=elsewhere, noted=from_json(to_json(note(READING))))
    assert not judged(read)["files.open"].failed
    assert judged(replace(read, noted=None))["files.open"].failed
