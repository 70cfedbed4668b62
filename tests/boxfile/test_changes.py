from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from reconciler.boxfile.changes import FIELDS, NEW_VM, Effect, between
from reconciler.boxfile.model import Boxfile
from tests.boxfile.strategies import BOXFILES


def boxfile(**fields: Any) -> Boxfile:  # noqa: ANN401  # any field's value
    return Boxfile(**{"base": "alpine", "network": "none", "on_drift": "stop", **fields})


WORK = {"host": "/srv", "guest": "/work"}


def test_every_field_is_classified() -> None:
    assert list(FIELDS) == list(Boxfile.model_fields)


@pytest.mark.parametrize(
    ("before", "after", "effect", "widening", "text"),
    [
        ({}, {"base": "debian"}, "rebuild", False, "base alpine→debian"),
        ({}, {"backend": "firecracker"}, "rebuild", False, "backend qemu→firecracker"),
        ({}, {"backend": "krun"}, "data-losing", True, "backend qemu→krun"),
        ({"backend": "krun"}, {"backend": "podman"}, "rebuild", False, "backend krun→podman"),
        ({"backend": "krun"}, {"backend": "qemu"}, "data-losing", False, "backend krun→qemu"),
        ({"isolation": "strict"}, {}, "restart", True, "isolation strict→standard"),
        ({}, {"isolation": "strict"}, "restart", False, "isolation standard→strict"),
        ({}, {"cpus": 4}, "restart", False, "cpus 2→4"),
        ({}, {"ram_mib": 4096}, "restart", False, "ram_mib 2048→4096"),
        ({}, {"network": "bridge"}, "restart", True, "network none→bridge"),
        ({"network": "bridge"}, {}, "restart", False, "network bridge→none"),
        ({}, {"passt": True}, "restart", True, "passt false→true"),
        ({"readonly": True}, {}, "restart", True, "readonly true→false"),
        ({}, {"readonly": True}, "restart", False, "readonly false→true"),
        ({}, {"timeout_seconds": 5}, "live", False, "timeout_seconds 0→5"),
        ({}, {"warm": 2}, "live", False, "warm 0→2"),
        ({}, {"warmup": ["make"]}, "live", False, "warmup"),
        (
            {"packages": ["git", "vim"]},
            {"packages": ["vim", "curl"]},
            "rebuild",
            False,
            "packages +curl -git",
        ),
        (
            {"packages": ["git", "vim"]},
            {"packages": ["vim", "git"]},
            "rebuild",
            False,
            "packages in another order",
        ),
        ({}, {"run": ["make"]}, "rebuild", False, "run"),
        (
            {"env": {"A": "1", "B": "2"}},
            {"env": {"B": "3", "C": "4"}},
            "live",
            False,
            "env +C -A ~B",
        ),
        ({}, {"mounts": [WORK]}, "restart", True, "mounts +/work (host: /srv ro)"),
        ({"mounts": [WORK]}, {}, "restart", False, "mounts -/work"),
        (
            {"mounts": [WORK]},
            {"mounts": [{**WORK, "mode": "rw"}]},
            "restart",
            True,
            "mounts /work (host: /srv ro→/srv rw)",
        ),
        (
            {"mounts": [{**WORK, "mode": "rw"}]},
            {"mounts": [WORK]},
            "restart",
            False,
            "mounts /work (host: /srv rw→/srv ro)",
        ),
        (
            {"mounts": [WORK]},
            {"mounts": [{**WORK, "host": "/other"}]},
            "restart",
            True,
            "mounts /work (host: /srv ro→/other ro)",
        ),
        (
            {"mounts": [WORK]},
            {"mounts": [{**WORK, "follow_symlink": True}]},
            "restart",
            True,
            "mounts /work (host: /srv ro→/srv ro, follow_symlink)",
        ),
        (
            {"mounts": [WORK]},
            {"mounts": [{**WORK, "risky": True}]},
            "restart",
            True,
            "mounts /work (host: /srv ro→/srv ro, risky)",
        ),
        (
            {"mounts": [{**WORK, "risky": True}]},
            {"mounts": [WORK]},
            "restart",
            False,
            "mounts /work (host: /srv ro, risky→/srv ro)",
        ),
        ({}, {"blueprint": {"runcmd": ["make"]}}, "rebuild", False, "blueprint"),
        ({}, {"pkgmgr": "apk"}, "nothing", False, "pkgmgr unset→apk"),
        ({}, {"seccomp": "a.json"}, "restart", True, "seccomp unset→a.json"),
        ({"seccomp": "a.json"}, {}, "restart", False, "seccomp a.json→unset"),
        ({"seccomp": "a.json"}, {"seccomp": "b.json"}, "restart", True, "seccomp a.json→b.json"),
        ({}, {"data_size": "8G"}, "nothing", False, "data_size unset→8G"),
        ({}, {"data_size": "10G"}, "restart", False, "data_size unset→10G"),
        ({}, {"data_size": "1G"}, "data-losing", False, "data_size unset→1G"),
        ({}, {"state": "stopped"}, "live", False, "state running→stopped"),
        ({}, {"on_drift": "alert"}, "live", True, "on_drift stop→alert"),
        ({}, {"on_drift": "freeze"}, "live", False, "on_drift stop→freeze"),
        ({"on_drift": "alert"}, {"on_drift": "freeze"}, "live", False, "on_drift alert→freeze"),
        ({}, {"protect": True}, "live", False, "protect false→true"),
    ],
)
def test_one_change(
    *, before: dict[str, Any], after: dict[str, Any], effect: str, widening: bool, text: str
) -> None:
    (change,) = between(boxfile(**before), boxfile(**after))
    assert (change.effect, change.widening, change.text) == (effect, widening, text)


@pytest.mark.parametrize(
    ("before", "after", "effect"),
    [
        (None, "apk", "nothing"),
        ("apk", "dnf", "rebuild"),
        (None, "apt", "rebuild"),
    ],
)
def test_another_package_manager_matters_where_there_are_packages(
    before: str | None, after: str, effect: str
) -> None:
    old = boxfile(packages=["git"], pkgmgr=before)
    (change,) = between(old, boxfile(packages=["git"], pkgmgr=after))
    assert change.effect == effect


@pytest.mark.parametrize(("before", "after"), [(None, "8G"), ("10G", None), ("1G", "512M")])
def test_a_folder_of_another_size_is_only_measured_otherwise(
    before: str | None, after: str | None
) -> None:
    old = boxfile(backend="krun", data_size=before)
    (change,) = between(old, boxfile(backend="krun", data_size=after))
    assert (change.effect, change.widening) == (Effect.LIVE, False)


def test_the_table_above_has_every_field_but_the_version() -> None:
    (mark,) = test_one_change.pytestmark
    seen = {key for case in mark.args[1] for fields in case[:2] for key in fields}
    assert seen == FIELDS.keys() - {"version"}


def test_what_needs_another_vm() -> None:
    same_vm = {
        "version",
        "timeout_seconds",
        "warm",
        "warmup",
        "env",
        "state",
        "on_drift",
        "protect",
    }
    assert set(NEW_VM) == FIELDS.keys() - same_vm


def test_values_of_variables_and_contents_of_files_are_not_told() -> None:
    secret = {
        "env": {"TOKEN": "s3cret"},
        "run": ["echo s3cret"],
        "warmup": ["echo s3cret"],
        "blueprint": {"write_files": [{"path": "/x", "content": "s3cret"}]},
    }
    found = between(boxfile(), boxfile(**secret))
    assert len(found) == len(secret)
    assert "s3cret" not in " ".join(map(str, found))


@pytest.mark.slow
@given(BOXFILES, BOXFILES)
def test_any_two_boxfiles_differ_in_what_differs(one: Boxfile, other: Boxfile) -> None:
    assert between(one, one) == ()
    found = {change.field for change in between(one, other)}
    assert found == {name for name in FIELDS if getattr(one, name) != getattr(other, name)}
    assert all(change.effect in Effect for change in between(one, other))
