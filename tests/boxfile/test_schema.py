"""The published schema: valid, told in full, and of one mind with the loader."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reconciler.boxfile.loader import load
from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.parser import parse
from reconciler.boxfile.problems import InvalidBoxfile
from reconciler.boxfile.scalars import Unquoted
from reconciler.boxfile.schema import DIALECT, properties, schema, schema_text
from reconciler.boxfile.support import LACKS
from reconciler.boxfile.text import decode
from reconciler.boxfile.titles import TITLES
from reconciler.boxfile.tree import Value
from tests.boxfile.corpus import BAD, GOOD

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "schemas" / "boxfile.schema.json"
SHIPPED = [*ROOT.glob("desired/*Boxfile"), *ROOT.glob("examples/*Boxfile")]

# Bad Boxfiles that a schema cannot refuse, and why.
_COMPUTES = "a schema does not compute"
_ONE_KEY = "a schema does not compare one key of a list's items"
_MANAGER = "which names are packages depends on what the base's name tells"
BEYOND_A_SCHEMA = {
    "data-size-huge": _COMPUTES,
    "data-size-large": _COMPUTES,
    "data-size-small": _COMPUTES,
    "mounts-hide-another": _ONE_KEY,
    "mounts-twice": _ONE_KEY,
    "users-twice": _ONE_KEY,
    "write-files-twice": _ONE_KEY,
    "packages-apk-colon": _MANAGER,
    "packages-apk-file": _MANAGER,
    "packages-apt-less-than": _MANAGER,
    "packages-apt-one-letter": _MANAGER,
    "packages-apt-removal": _MANAGER,
    "packages-apt-underscore": _MANAGER,
    "packages-apt-upper-case": _MANAGER,
    "packages-archive": _MANAGER,
    "packages-by-pkgmgr": _MANAGER,
    "packages-digest": _MANAGER,
    "packages-dnf-equals": _MANAGER,
    "packages-dnf-less-than": _MANAGER,
    "packages-no-manager": _MANAGER,
    "write-files-in-a-file": _ONE_KEY,
}

VALIDATOR = jsonschema.Draft202012Validator(schema())


def test_the_committed_schema_is_the_models() -> None:
    if os.environ.get("BOX_UPDATE_SCHEMAS") == "1":
        COMMITTED.write_text(schema_text(), encoding="utf-8")
    assert COMMITTED.read_text(encoding="utf-8") == schema_text(), (
        "run the tests with BOX_UPDATE_SCHEMAS=1 and commit the result"
    )


def test_it_is_a_schema_of_the_dialect_it_names() -> None:
    assert schema()["$schema"] == DIALECT
    jsonschema.Draft202012Validator.check_schema(schema())
    # What the metaschema calls optional, and only some validators know.
    assert {key for each in objects(schema()) for key in each if key.startswith("x-")} == set()


def objects(value: object) -> Iterator[dict[str, Any]]:
    """Every JSON object in a value."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from objects(each)


def field_rules(whole: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rule of every field of the Boxfile and of its definitions, however it is reached."""
    yield from whole["properties"].items()
    for name, definition in whole["$defs"].items():
        for field, rule in definition["properties"].items():
            yield f"{name}.{field}", rule


def test_every_field_of_every_model_is_in_it_once() -> None:
    paths = [each.path for each in properties(schema())]
    assert len(paths) == len(set(paths)) == len(list(field_rules(schema())))
    assert paths == list(TITLES), "TITLES has another order, or other fields"
    assert list(schema()["properties"]) == list(Boxfile.model_fields)


@pytest.mark.parametrize(("path", "rule"), list(field_rules(schema())))
def test_every_field_has_a_title_a_description_and_examples(
    path: str, rule: dict[str, Any]
) -> None:
    assert re.fullmatch("[A-Z][^.]*", rule["title"]), path
    assert not re.search("[a-z]_|Mib|Cpus", rule["title"]), "no title a person would write"
    assert re.fullmatch(r"\S.*\.", rule["description"]), "descriptions are sentences"
    assert rule["examples"]
    for example in rule["examples"]:
        VALIDATOR.evolve(schema=rule | {"$defs": schema()["$defs"]}).validate(example)


@pytest.mark.parametrize("path", [each.path for each in properties(schema())])
def test_no_two_fields_of_one_mapping_have_one_title(path: str) -> None:
    beside = [title for other, title in TITLES.items() if above(other) == above(path)]
    assert beside.count(TITLES[path]) == 1


def above(path: str) -> str:
    return path.rpartition(".")[0]


def test_no_object_takes_unknown_fields() -> None:
    for each in [schema(), *schema()["$defs"].values()]:
        assert each["additionalProperties"] is False


def test_defaults_are_the_models_and_pass_their_own_rules() -> None:
    least = Boxfile(base="builtin:busybox", network="none").model_dump()
    for field, rule in schema()["properties"].items():
        if field in {"network", "blueprint"}:
            continue
        if "default" in rule:
            assert rule["default"] == least[field], field
        else:
            assert field == "base" or least[field] is None or field == "on_drift"
    assert schema()["properties"]["network"]["default"] == "bridge"
    said = Boxfile.model_validate({"base": "builtin:busybox", "network": "none", "blueprint": {}})
    assert said.model_dump() == least, "{} is what a left out blueprint is"
    for _, rule in field_rules(schema()):
        if "default" in rule:
            VALIDATOR.evolve(schema=rule | {"$defs": schema()["$defs"]}).validate(rule["default"])


def as_editor_sees(value: Value) -> object:
    """Return the value as JSON data; what YAML takes for no text becomes None."""
    if isinstance(value, dict):
        return {key: as_editor_sees(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_editor_sees(item) for item in value]
    return None if isinstance(value, Unquoted) else value


def accepts(data: bytes) -> bool | None:
    """Whether the schema accepts a file's data; None when the text itself is refused."""
    try:
        tree = parse(decode(data, ""), "")
    except InvalidBoxfile:
        return None
    if tree.problems or tree.value is None:
        return None
    return VALIDATOR.is_valid(as_editor_sees(tree.value))


@pytest.mark.parametrize("path", [*GOOD, *SHIPPED], ids=lambda path: path.name)
def test_the_schema_accepts_what_the_loader_accepts(path: Path) -> None:
    assert accepts(path.read_bytes())


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name)
def test_the_schema_refuses_what_the_loader_refuses(path: Path) -> None:
    expected = path.stem in BEYOND_A_SCHEMA
    assert accepts(path.read_bytes()) in {expected, None}


def test_all_that_is_said_to_be_beyond_a_schema_is_there() -> None:
    assert BEYOND_A_SCHEMA.keys() <= {path.stem for path in BAD}


BASE = "base: docker.io/library/debian:12\n"
ASKING = {
    "network": "network: bridge",
    "passt": "passt: true",
    "warm": "warm: 1",
    "warmup": "warmup: [true1]",
    "mounts": "mounts: [{host: /srv, guest: /srv}]",
    "seccomp": "seccomp: a.json",
    "on_drift": "on_drift: freeze",
}


@pytest.mark.parametrize("backend", ["", *LACKS])
@pytest.mark.parametrize("field", ASKING)
def test_schema_and_loader_agree_on_what_a_backend_can_do(backend: str, field: str) -> None:
    text = BASE + (f"backend: {backend}\n" if backend else "") + f"{ASKING[field]}\n"
    if field != "network":
        text += "network: none\n"
    assert accepts(text.encode()) == loads(text), text


@pytest.mark.parametrize(
    "text",
    [
        "network: none\n",
        "",
        "backend: qemu\n",
        "backend: krun\n",
        "backend: krun\nisolation: strict\nmounts: [{host: /a, guest: /a}]\n",
        "backend: krun\nisolation: strict\nmounts: [{host: /a, guest: /a, mode: rw}]\n",
        "backend: krun\nmounts: [{host: /a, guest: /a, mode: rw}]\n",
        (
            "backend: krun\nisolation: strict\nmounts:\n"
            "- {host: /a, guest: /a}\n- {host: /b, guest: /b, mode: rw}\n"
        ),
        "network: none\npackages: [git]\n",
    ],
)
@pytest.mark.parametrize("base", [BASE, "base: builtin:busybox\n"])
def test_schema_and_loader_agree_on_rules_over_several_fields(base: str, text: str) -> None:
    assert accepts((base + text).encode()) == loads(base + text)


def loads(text: str) -> bool:
    try:
        load(text.encode(), source="")
    except InvalidBoxfile:
        return False
    return True


def test_the_rules_over_several_fields_name_fields_that_exist() -> None:
    names = {each.rule["title"]: each.path for each in properties(schema())}
    assert names
    for rule in schema()["allOf"]:
        for part in ("if", "then"):
            assert rule[part]["properties"].keys() <= schema()["properties"].keys()
            assert set(rule[part].get("required", ())) <= schema()["properties"].keys()


def test_it_is_the_same_text_each_time() -> None:
    assert schema_text() == schema_text()
    assert json.loads(schema_text()) == schema()
    changed = copy.deepcopy(schema())
    changed["properties"].clear()
    assert schema()["properties"], "a caller cannot change what the next one gets"
