from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from reconciler.boxfile.changes import DEFAULT_DATA_BYTES
from reconciler.boxfile.loader import load
from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.recipe import Blueprint, NewFile, NewUser, Recipe
from reconciler.engine.spec import HostMount, Spec, spec_of
from tests.engine.specs import SPEC, spec

CHANGES: dict[str, object] = {
    "name": "db",
    "base": "oci-archive:/x",
    "backend": "krun",
    "isolation": "standard",
    "cpus": 2,
    "ram_mib": 512,
    "network": "bridge",
    "readonly": True,
    "timeout_seconds": 9,
    "env": (("EDITOR", "ed"),),
    "data_size": "32M",
    "state": "stopped",
    "on_drift": "alert",
    "protect": True,
    "passt": True,
    "warm": 1,
    "warmup": ("true",),
    "packages": ("git",),
    "run": ("true",),
    "mounts": (HostMount("/srv", "/srv"),),
    "blueprint": Blueprint(users=(NewUser("agent"),)),
    "pkgmgr": "apt",
    "seccomp": "/x.json",
}
WITHOUT_ANOTHER_VM = {
    "name",
    "timeout_seconds",
    "env",
    "state",
    "on_drift",
    "protect",
    "warm",
    "warmup",
}


def test_a_spec_survives_json() -> None:
    assert Spec.from_json(json.loads(json.dumps(SPEC.to_json()))) == SPEC


def test_the_changes_below_name_every_field() -> None:
    assert set(CHANGES) == {field.name for field in dataclasses.fields(Spec)}


@pytest.mark.parametrize("name", list(CHANGES))
def test_every_field_is_in_the_digest_and_the_right_ones_need_another_vm(name: str) -> None:
    other = spec(**{name: CHANGES[name]})
    assert other.digest != SPEC.digest
    assert (other.vm_digest == SPEC.vm_digest) is (name in WITHOUT_ANOTHER_VM)


def test_a_missing_or_unknown_field_is_named() -> None:
    value = SPEC.to_json()
    del value["ram_mib"]
    with pytest.raises(ValueError, match="later, ram_mib"):
        Spec.from_json({**value, "later": 1})


def test_a_spec_has_every_field_of_a_boxfile() -> None:
    names = {field.name for field in dataclasses.fields(Spec)}
    assert names - {"name"} == Boxfile.model_fields.keys() - {"version"}


def test_a_record_from_before_a_field_has_its_default() -> None:
    value = SPEC.to_json()
    for name in ("mounts", "blueprint", "pkgmgr", "warm"):
        del value[name]
    assert Spec.from_json(value) == SPEC


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cpus", "1"),
        ("cpus", True),
        ("readonly", 0),
        ("base", None),
        ("env", {"A": 1}),
        ("env", ["A"]),
        ("mounts", [{"host": "/"}]),
        ("mounts", "x"),
        ("blueprint", {"users": []}),
        ("packages", [1]),
        ("packages", None),
    ],
)
def test_values_of_other_types_are_no_spec(name: str, value: object) -> None:
    with pytest.raises(ValueError, match="not a spec"):
        Spec.from_json({**SPEC.to_json(), name: value})


EVERYTHING = """
base: docker.io/library/debian:12
backend: podman
warm: 2
warmup: ["true"]
packages: [git]
run: [make]
env: {A: "1"}
mounts: [{host: ~/src, guest: /src}, {host: /here, guest: /here, mode: rw, risky: true}]
blueprint:
  users: [{name: agent, sudo: true}]
  write_files: [{path: /etc/motd, content: hi, mode: "640"}]
  runcmd: [ls]
seccomp: profiles/a.json
"""


def test_nested_fields_survive_json_and_paths_become_absolute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    found = spec_of("web", load(EVERYTHING.encode(), source="x"), Path("/folder/sub"))
    assert found.mounts == (
        HostMount("/home/me/src", "/src"),
        HostMount("/here", "/here", "rw", risky=True),
    )
    assert found.seccomp == "/folder/sub/profiles/a.json"
    assert found.recipe == Recipe(
        base="docker.io/library/debian:12",
        pkgmgr="apt",
        packages=("git",),
        users=(NewUser("agent", sudo=True),),
        files=(NewFile("/etc/motd", "hi", "0640"),),
        run=("make",),
        runcmd=("ls",),
    )
    assert Spec.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_the_default_size_said_or_not_is_the_same_vm() -> None:
    said = spec(data_size="8G")
    unsaid = spec(data_size=None)
    assert said.vm_digest == unsaid.vm_digest
    assert said.digest != unsaid.digest


def test_a_boxfile_becomes_a_spec() -> None:
    text = "version: 1\nbase: oci-archive:./x.tar\nnetwork: none\nenv: {B: b, A: a}\n"
    boxfile = load(text.encode(), source="web.Boxfile")
    found = spec_of("web", boxfile, Path("/folder/sub"))
    assert found.base == "oci-archive:/folder/sub/x.tar"
    assert found.env == (("B", "b"), ("A", "a"))
    assert found.data_bytes == DEFAULT_DATA_BYTES
    assert Spec.from_json(json.loads(json.dumps(found.to_json()))) == found
