from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.confinement.facts import Fact, Verdict
from reconciler.confinement.judging import judge
from reconciler.confinement.policy import IdRange
from reconciler.confinement.promises import PROMISES, promise
from reconciler.confinement.reading import (
    CgroupLimits,
    FileReading,
    NamespaceId,
    Reading,
    Unreadable,
)
from tests.confinement.readings import HOST, LIMITS, PID, POLICY, READING, process, thread

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
    return replace(READING, limits=replace(LIMITS, **change))


def test_every_promise_is_judged_in_its_order() -> None:
    facts = judge(POLICY, READING)
    assert [fact.promise for fact in facts] == [each.id for each in PROMISES]
    assert {fact.verdict for fact in facts} == {Verdict.SAME}
    assert not any(fact.failed for fact in facts)


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
    *((f"namespace.{kind}", with_thread(namespaces={**thread().namespaces, kind: own}))
      for kind, own in HOST.namespaces.items() if isinstance(own, NamespaceId)),
    ("namespace.net",
     with_thread(namespaces={**thread().namespaces, "net": NamespaceId(4, 99)})),
    ("network.interfaces", with_process(interfaces=("lo", "eth0"))),
    ("network.interfaces", with_process(interfaces=("lo", "lo:1"))),
    ("cgroup.path", with_thread(cgroups={"memory": "/", "pids": "/box-1000/vm"})),
    ("cgroup.path", with_thread(cgroups={"pids": "/box-1000/vm"})),
    ("cgroup.path", with_thread(cgroups={"memory": "/box-1000/vm/x", "pids": "/box-1000/vm"})),
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
    ("files.open", with_process(files=(FileReading(4, 20, 8),))),
    ("files.open", with_process(files=(FileReading(4, 21, 7),))),
    ("files.open", with_process(files=(FileReading(4, 9999, 1),))),
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
    ("files.open", with_process(files=(FileReading(4, 20, None),))),
    ("limit.pids", replace(READING, limits=LOST)),
    ("limit.memory", replace(READING, limits=LOST)),
    ("limit.swap", replace(READING, limits=LOST)),
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
        ("files.open", {"files": (FileReading(4, 20, 8),)}),
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
    reading = replace(READING, limits=CgroupLimits(pids=1, memory=1, memory_and_swap=1))
    assert not any(fact.failed for fact in judge(POLICY, reading))


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
