from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.engine import records
from reconciler.linux import files
from reconciler.linux.identity import ProcessIdentity
from tests.engine import specs

WHO = ProcessIdentity(5, 6, "boot", None, None)


def change(path: Path, **changes: object) -> None:
    value = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in value.items() if v != "gone"}))


def test_a_sandboxs_record_comes_back_as_it_was(home: Path) -> None:
    records.keep_sandbox(home, specs.RECORD)
    assert records.sandbox_record(home, "web") == specs.RECORD
    assert records.sandbox_names(home) == ("web",)
    assert records.sandbox_record(home, "db") is None


def test_a_vms_record_comes_back_as_it_was_and_is_private(home: Path) -> None:
    for name, identity, owner in (("web", WHO, None), ("web.1234abcd", None, WHO)):
        record = specs.vm(home, name, identity=identity, owner=owner)
        records.keep_vm(home, record)
        assert records.vm_record(home, name) == record
        assert (home / "run" / f"{name}.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '"x"', "{}", '{"name": "web"}', "\x00\xff", "[" * 100_000]
)
def test_a_file_that_is_no_record_is_told_with_what_to_do(home: Path, text: str) -> None:
    records.keep_sandbox(home, specs.RECORD)
    records.keep_vm(home, specs.vm(home))
    sandbox = home / "sandboxes/web/record.json"
    for path in (sandbox, home / "run/web.json"):
        path.write_text(text)
    with pytest.raises(files.BrokenFile, match=r"record\.json") as caught:
        records.sandbox_record(home, "web")
    assert f"mv {sandbox} {sandbox}.broken" in str(caught.value)
    with pytest.raises(files.BrokenFile, match=r"web\.json") as caught:
        records.vm_record(home, "web")
    # Moving this one away would lose the VM.
    assert "box down web" in str(caught.value)
    assert "mv" not in str(caught.value.hint)


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": {}},
        {"spec": []},
        {"spec": 5},
        {"spec": specs.SPEC.to_json() | {"later": 1}},
        {"spec": {k: v for k, v in specs.SPEC.to_json().items() if k != "protect"}},
        {"spec": specs.SPEC.to_json() | {"cpus": "1"}},
        {"spec": specs.SPEC.to_json() | {"protect": 0}},
        {"spec": specs.SPEC.to_json() | {"env": {"A": "B"}}},
        {"identity": "x"},
        {"identity": {"pid": -1}},
        {"owner": []},
        {"token": "xyz"},
        {"token": "ab"},
        {"token": 5},
        {"token": "gone"},
        {"group": 5},
        {"group": ""},
        {"group": "12345678-"},
        {"group": "12345678-other"},
        {"vm": "other"},
        {"sandbox": "other"},
        {"image_env": 5},
    ],
)
def test_a_vms_record_with_something_wrong_is_broken(home: Path, changes: dict[str, Any]) -> None:
    records.keep_vm(home, specs.vm(home))
    change(home / "run/web.json", **changes)
    with pytest.raises(files.BrokenFile):
        records.vm_record(home, "web")


def test_a_vms_record_of_another_version_is_read(home: Path) -> None:
    """What is new since has a default, what is gone since is passed over."""
    records.keep_vm(home, specs.vm(home))
    path = home / "run/web.json"
    change(path, image_env="gone", user="gone", started_at="gone", later={"a": 1})
    assert records.vm_record(home, "web") == specs.vm(home)


@pytest.mark.parametrize(
    "changes", [{"name": "db"}, {"spec": specs.spec(name="db").to_json()}, {"incarnation": "x"}]
)
def test_a_sandboxs_record_with_something_wrong_is_broken(
    home: Path, changes: dict[str, Any]
) -> None:
    records.keep_sandbox(home, specs.RECORD)
    change(home / "sandboxes/web/record.json", **changes)
    with pytest.raises(files.BrokenFile):
        records.sandbox_record(home, "web")


def test_a_broken_record_hides_no_other(home: Path) -> None:
    for name in ("db", "web", "web.11111111", "web.22222222", "web-2"):
        records.keep_vm(home, specs.vm(home, name))
    (home / "run/web.11111111.json").write_text("{")
    names = ("db", "web", "web-2", "web.11111111", "web.22222222")
    assert records.vm_names(home) == names
    assert tuple(each.vm for each in records.vm_records(home)) == tuple(
        name for name in names if name != "web.11111111"
    )
    assert [each.vm for each in records.vm_records(home, "web")] == ["web", "web.22222222"]
    assert records.broken_vms(home, "web") == ("web.11111111",)
    assert records.broken_vms(home, "web-2") == ()


def test_forgetting_a_vm_takes_its_directory_and_twice_is_once(home: Path) -> None:
    record = specs.vm(home)
    records.keep_vm(home, record)
    record.directory(home).mkdir()
    (record.directory(home) / "policy.json").write_text("{}")
    for _ in range(2):
        records.forget_vm(home, "web")
        assert list((home / "run").iterdir()) == []
