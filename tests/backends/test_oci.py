from __future__ import annotations

import pytest

from reconciler.backends.oci import oci_spec
from reconciler.confinement.policy import BindMount, IdRange, Slot, policy_for
from reconciler.linux.userns import MapsRefused, OuterMaps

SLOT = Slot(0, 3_500_000_000, 3_500_000_000)


def test_the_spec_asks_for_nothing_that_the_policy_does_not() -> None:
    policy = policy_for(
        isolation="strict",
        ram_mib=128,
        cpus=1,
        own_uid=1000,
        own_gid=1000,
        slot=SLOT,
        cgroup="/x",
        binds=(BindMount("/a", "/b"), BindMount("/c", "/d", read_only=False)),
    )
    spec = oci_spec(policy, "/x", None, ["/vmm"])
    process, linux, mounts = spec["process"], spec["linux"], spec["mounts"]
    assert isinstance(process, dict)
    assert isinstance(linux, dict)
    assert isinstance(mounts, list)
    assert set(map(tuple, process["capabilities"].values())) == {()}
    assert process["noNewPrivileges"] is True
    assert process["env"] == []
    assert linux["resources"]["memory"] == {"limit": (128 + 256) << 20, "swap": (128 + 256) << 20}
    assert linux["resources"]["devices"] == [{"allow": False, "access": "rwm"}]
    assert {each["type"] for each in linux["namespaces"]} == {
        "user", "mount", "pid", "ipc", "uts", "network", "cgroup"
    }  # fmt: skip
    binds = {each["source"]: each["options"] for each in mounts if each["type"] == "bind"}
    assert binds == {
        "/a": ["bind", "nosuid", "nodev", "ro"],
        "/c": ["bind", "nosuid", "nodev", "rw"],
    }
    assert all(each.get("source") != "/" for each in mounts)


def test_ids_are_those_that_the_runtime_sees_in_its_own_namespace() -> None:
    ranges = (IdRange(0, 1000, 1), IdRange(1, SLOT.uid_base - 100, 70_000))
    policy = policy_for(
        isolation="strict",
        ram_mib=128,
        cpus=1,
        own_uid=1000,
        own_gid=1000,
        slot=SLOT,
        cgroup="/x",
    )
    spec = oci_spec(policy, "/x", OuterMaps(ranges, ranges), ["/vmm"])
    wanted = [{"containerID": 0, "hostID": 101, "size": 65_536}]
    assert spec["linux"]["uidMappings"] == spec["linux"]["gidMappings"] == wanted
    with pytest.raises(MapsRefused):
        oci_spec(policy, "/x", OuterMaps(ranges[:1], ranges[:1]), ["/vmm"])
