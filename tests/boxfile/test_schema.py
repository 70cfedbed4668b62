from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from reconciler.boxfile.model import Boxfile
from reconciler.boxfile.parser import parse
from reconciler.boxfile.problems import InvalidBoxfile
from reconciler.boxfile.scalars import Unquoted
from reconciler.boxfile.schema import schema_text
from reconciler.boxfile.text import decode
from reconciler.boxfile.tree import Value
from tests.boxfile.corpus import BAD, EXAMPLES, GOOD

COMMITTED = Path(__file__).parents[2] / "schemas" / "boxfile.json"

# Bad Boxfiles that a schema cannot refuse, and why.
BEYOND_A_SCHEMA = {
    "base-archive-climbs": "a regular expression of the schema has no way to forbid ..",
    "base-builtin-unknown": "to the grammar builtin is the name of an image",
    "base-transport-storage": "to the grammar containers-storage is the name of an image",
    "data-size-large": "a schema does not compute",
    "data-size-newline": "the validator's $ matches before a last line break, an editor's does not",
    "data-size-small": "a schema does not compute",
}


def test_the_committed_schema_is_the_models() -> None:
    if os.environ.get("BOX_UPDATE_SCHEMAS") == "1":
        COMMITTED.write_text(schema_text(), encoding="utf-8")
    assert COMMITTED.read_text(encoding="utf-8") == schema_text(), (
        "run the tests with BOX_UPDATE_SCHEMAS=1 and commit the result"
    )


def schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(schema_text())
    return loaded


def test_the_schema_is_valid_and_describes_every_field() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    properties = schema()["properties"]
    assert properties.keys() == Boxfile.model_fields.keys()
    for field in properties.values():
        assert field["description"]
        assert field["examples"]
        assert field["title"]


def as_editor_sees(value: Value) -> object:
    """Return the value as JSON data; what YAML takes for no text becomes None."""
    if isinstance(value, dict):
        return {key: as_editor_sees(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_editor_sees(item) for item in value]
    return None if isinstance(value, Unquoted) else value


def accepts(path: Path) -> bool | None:
    """Whether the schema accepts a file's data; None when the text itself is refused."""
    text = path.read_bytes()
    try:
        tree = parse(decode(text, path.name), path.name)
    except InvalidBoxfile:
        return None
    if tree.problems or tree.value is None:
        return None
    return jsonschema.Draft202012Validator(schema()).is_valid(as_editor_sees(tree.value))


@pytest.mark.parametrize("path", [*GOOD, *EXAMPLES], ids=lambda path: path.name)
def test_the_schema_accepts_what_the_loader_accepts(path: Path) -> None:
    assert accepts(path)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.name)
def test_the_schema_refuses_what_the_loader_refuses(path: Path) -> None:
    expected = path.stem in BEYOND_A_SCHEMA
    assert accepts(path) in {expected, None}
