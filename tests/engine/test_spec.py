from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from reconciler.boxfile.loader import load
from reconciler.engine.spec import DEFAULT_DATA_BYTES, Spec, spec_of
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
    "data_bytes": 32 << 20,
    "state": "stopped",
    "on_drift": "alert",
    "protect": True,
}
WITHOUT_ANOTHER_VM = {"name", "timeout_seconds", "env", "state", "on_drift", "protect"}


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


def test_a_boxfile_becomes_a_spec() -> None:
    text = "version: 1\nbase: oci-archive:./x.tar\nnetwork: none\nenv: {B: b, A: a}\n"
    boxfile = load(text.encode(), source="web.Boxfile")
    found = spec_of("web", boxfile, Path("/folder/sub"))
    assert found.base == "oci-archive:/folder/sub/x.tar"
    assert found.env == (("B", "b"), ("A", "a"))
    assert found.data_bytes == DEFAULT_DATA_BYTES
    assert Spec.from_json(json.loads(json.dumps(found.to_json()))) == found
