"""No text of a Boxfile that reaches a command line, a Containerfile or a guest has a control."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.boxfile.loader import load
from reconciler.boxfile.schema import properties, schema
from tests.boxfile.loading import LEAST, problems_of

CONTROLS = [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029]
FILE_CONTROLS = [code for code in CONTROLS if chr(code) not in "\t\n\r"]

ALPINE = "base: alpine\nbackend: krun\n"
MOUNT = ALPINE + "mounts:\n- host: /\n  guest: /x\n"
USER = ALPINE + "blueprint:\n  users:\n  - name: agent\n"
FILE = ALPINE + "blueprint:\n  write_files:\n  - path: /x\n"
# Every field that is text: a Boxfile around it and a good value. @ stands for the value in quotes.
TEXTS = {
    "base": ("network: none\nbase: @\n", "alpine"),
    "backend": (LEAST.decode() + "backend: @\n", "qemu"),
    "isolation": (LEAST.decode() + "isolation: @\n", "strict"),
    "network": ("base: alpine\nnetwork: @\n", "none"),
    "warmup": (ALPINE + "warmup: [@]\n", "echo a"),
    "packages": (ALPINE + "packages: [@]\n", "git"),
    "run": (ALPINE + "run: [@]\n", "echo a"),
    "env": (ALPINE + "env: {A: @}\n", "a b"),
    "env key": (ALPINE + "env: {@: a}\n", "AB"),
    "pkgmgr": (ALPINE + "pkgmgr: @\n", "apk"),
    "seccomp": (ALPINE + "seccomp: @\n", "a/b.json"),
    "data_size": (LEAST.decode() + "data_size: @\n", "16G"),
    "state": (LEAST.decode() + "state: @\n", "stopped"),
    "on_drift": (LEAST.decode() + "on_drift: @\n", "stop"),
    "mounts.host": (MOUNT.replace("host: /", "host: @"), "/a/b"),
    "mounts.guest": (MOUNT.replace("guest: /x", "guest: @"), "/a/b"),
    "mounts.mode": (MOUNT + "  mode: @\n", "rw"),
    "blueprint.users.name": (USER.replace("agent", "@"), "agent"),
    "blueprint.users.shell": (USER + "    shell: @\n", "/bin/sh"),
    "blueprint.write_files.path": (FILE.replace("/x", "@") + "    content: x\n", "/a/b"),
    "blueprint.write_files.mode": (FILE + "    content: x\n    mode: @\n", "0644"),
    "blueprint.write_files.content": (FILE + "    content: @\n", "a b"),
    "blueprint.runcmd": (ALPINE + "blueprint:\n  runcmd: [@]\n", "echo a"),
}


def is_text(rule: Mapping[str, Any]) -> bool:
    """Whether a property of the schema is text or a list or mapping of texts."""
    inner = rule.get("items") or rule.get("additionalProperties") or rule
    return inner.get("type") == "string" or "enum" in inner


def test_the_table_has_every_text_field() -> None:
    fields = {each.path for each in properties(schema()) if is_text(each.rule)}
    assert TEXTS.keys() - {"env key"} == fields


@pytest.mark.parametrize("field", TEXTS)
def test_a_good_value_is_taken(field: str) -> None:
    text, good = TEXTS[field]
    load(text.replace("@", f'"{good}"').encode(), source="x")


@pytest.mark.parametrize("field", TEXTS)
def test_no_field_takes_a_control_character_anywhere(field: str) -> None:
    text, good = TEXTS[field]
    path = field.removesuffix(" key")
    for code in FILE_CONTROLS if field.endswith("content") else CONTROLS:
        for at in (0, len(good) // 2, len(good)):
            value = f'"{good[:at]}\\u{code:04x}{good[at:]}"'
            found = problems_of(text.replace("@", value).encode())
            (problem,) = found
            assert problem.path.replace("[0]", "").startswith(path), (code, at)
            assert str(problem).isprintable()


@pytest.mark.parametrize("control", ["\t", "\n", "\r", "\r\n"])
def test_a_file_may_have_tabs_and_line_ends(control: str) -> None:
    text, _ = TEXTS["blueprint.write_files.content"]
    escaped = "".join(f"\\x{ord(each):02x}" for each in control)
    boxfile = load(text.replace("@", f'"a{escaped}b"').encode(), source="x")
    assert boxfile.blueprint.write_files[0].content == f"a{control}b"


@pytest.mark.parametrize("field", TEXTS)
@pytest.mark.parametrize("value", ["no", "~", "0644", "22:22", "1e3", "1.10", "2024-01-01", "5"])
def test_no_field_takes_what_yaml_takes_for_something_else(field: str, value: str) -> None:
    text, _ = TEXTS[field]
    (problem,) = problems_of(text.replace("@", value).encode())
    assert problem.path.replace("[0]", "").startswith(field.removesuffix(" key"))
    if field == "env" and value[0].isdigit():
        # It may be a secret.
        assert value not in problem.message
        assert "in YAML; write it in quotes" in problem.message
    else:
        assert f"{value} is " in problem.message
